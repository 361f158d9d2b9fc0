# An independent peer of the Tsunami UDP protocol v1.1 (TTP), for interoperability tests on loopback.
# The facts are from the description of the protocol alone; no code is shared with ours.
import argparse, hashlib, json, os, random, select, signal, socket, struct, sys, time

REVISION = 0x20061025
SILENCE = 10  # seconds: a peer that says nothing for so long is given up
LIMIT = 120  # seconds for one connection, whatever the other end does
RETRANSMIT, RESTART, STOP, ERROR_RATE = range(4)
ORIGINAL, AGAIN, LAST = ord("O"), ord("R"), ord("X")
THRESHOLD, SLOWER, FASTER = 7500, (25, 24), (5, 6)  # what our client asks for
MANY, TABLE = 2048, 65536  # outstanding requests that make a RESTART; the most that are kept


class Failure(Exception):
    pass


def check(condition, reason):
    if not condition:
        raise Failure(reason)


def too_long(_signal, _frame):
    raise Failure(f"not finished after {LIMIT} s")


def more(tcp, inbox, what):
    """Take what has arrived into `inbox`; False when the other end has closed."""
    try:
        piece = tcp.recv(65536)
    except socket.timeout:
        raise Failure(f"{SILENCE} s of silence before {what}") from None
    inbox += piece
    return bool(piece)


def read_exact(tcp, inbox, length, what):
    while len(inbox) < length:
        check(more(tcp, inbox, what), f"connection closed after {len(inbox)} of {length} bytes of {what}")
    data = bytes(inbox[:length])
    del inbox[:length]
    return data


def read_string(tcp, inbox, ends, limit, what):
    """A string up to one of the bytes in `ends`. None: closed before its first byte."""
    while True:
        at = min((i for i in map(inbox.find, ends) if i >= 0), default=-1)
        if at >= 0:
            check(at < limit, f"{what} is longer than {limit} bytes")
            data = bytes(inbox[:at])
            del inbox[:at + 1]
            return data
        check(len(inbox) < limit, f"{what} has no end after {len(inbox)} bytes")
        if not more(tcp, inbox, what):
            check(not inbox, f"connection closed in the middle of {what}")
            return None


def udp_socket(address, port):
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        udp.setsockopt(socket.SOL_SOCKET, option, 20_000_000)
    udp.bind((address, port))  # without SO_REUSEADDR, which would let parallel tests take each other's data
    return udp


def proof(challenge, secret):
    return hashlib.md5(bytes(c ^ secret[i % len(secret)] for i, c in enumerate(challenge))).digest()


def revision(tcp, inbox):
    tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    tcp.settimeout(SILENCE)
    tcp.sendall(struct.pack(">I", REVISION))
    theirs = struct.unpack(">I", read_exact(tcp, inbox, 4, "the revision"))[0]
    check(theirs == REVISION, f"revision {theirs:#x}")


# ---------------------------------------------------------------- the server

def pause(microseconds):
    until = time.perf_counter() + microseconds / 1e6
    if microseconds >= 10_000:  # sleep is only good for whole steps of 10 ms; the rest is spun
        time.sleep(microseconds // 10_000 / 100)
    while time.perf_counter() < until:
        pass


def new_gap(gap, least, error, threshold, slower, faster):
    if error > threshold:
        gap *= 1 + (slower - 1) * (1 + error - threshold) / (100_000 - threshold)
    else:
        gap *= faster
    return max(min(gap, 10_000), least)  # the least gap wins when it is above 10 ms


def shares(folder):
    """What is served: the plain files directly in the folder."""
    entries = [e for e in os.scandir(os.fsencode(folder)) if e.is_file() and b"\n" not in e.name]
    return {e.name: e.stat().st_size for e in sorted(entries, key=lambda e: e.name)}


def transfer(args, rng, tcp, inbox, counts, content):
    """Answer the parameters of one get, then send until STOP."""
    asked = struct.unpack(">IIIHHHH", read_exact(tcp, inbox, 20, "the parameters"))
    block_size, rate, threshold, slower_num, slower_den, faster_num, faster_den = asked
    check(0 < block_size <= 65501, f"block size {block_size} does not fit a datagram")
    check(rate > 0 and threshold < 100_000 and slower_den and faster_den, f"parameters {asked}")
    slower, faster = slower_num / slower_den, faster_num / faster_den
    count = -(-len(content) // block_size)
    tcp.sendall(struct.pack(">QIII", len(content), block_size, count, int(time.time())))
    port = struct.unpack(">H", read_exact(tcp, inbox, 2, "the UDP port"))[0]
    check(port, "UDP port 0 announced")
    target = (tcp.getpeername()[0], port)
    udp = udp_socket("127.0.0.1", 0)

    least = int(8e6 * block_size / rate)
    gap, debt, most_debt = 3.0 * least, 0.0, 0.0
    cursor = highest = 0
    buffer = bytearray(b"\xa5" * block_size)  # junk past the end of the last block shows who does not truncate
    held = None
    slots = 0  # since the last feedback or heartbeat
    last = time.perf_counter()
    last_feedback = last_heartbeat = time.monotonic()
    tcp.setblocking(False)
    while True:
        send = None
        try:
            if len(inbox) < 12:
                check(more(tcp, inbox, "feedback"), "connection closed before STOP")
        except BlockingIOError:
            pass
        if len(inbox) >= 12:  # at most one per slot
            kind, pad, block, error = struct.unpack(">HHII", read_exact(tcp, inbox, 12, "feedback"))
            check(pad == 0 and kind <= 3, f"feedback of type {kind}, pad {pad}")
            last_feedback, slots = time.monotonic(), 0
            if kind in (RETRANSMIT, RESTART):
                check(1 <= block <= count, f"feedback {kind} about block {block} of {count}")
                check(block <= highest, f"feedback {kind} about block {block}, never sent (up to {highest})")
            if kind == RETRANSMIT:
                counts["retransmitted"] += 1
                send = block, LAST if block == count else AGAIN  # the last is always typed X
            elif kind == RESTART:
                counts["restarts"] += 1
                cursor = block  # so the next one sent is block + 1
            elif kind == ERROR_RATE:
                counts["error_reports"] += 1
                gap = new_gap(gap, least, error, threshold, slower, faster)
            else:
                break
        elif count:  # (an empty file has no block at all: only STOP is awaited)
            cursor = min(cursor + 1, count)
            highest = max(highest, cursor)
            counts["blocks"] += 1
            send = cursor, LAST if cursor == count else ORIGINAL
        if send:
            piece = content[(send[0] - 1) * block_size:send[0] * block_size]
            buffer[:len(piece)] = piece  # what is past the end stays from before
            datagram = struct.pack(">IH", *send) + buffer
            if rng.random() < args.loss:
                counts["dropped"] += 1
            elif held is None and rng.random() < args.reorder:
                counts["held"] += 1
                held = datagram
            else:
                udp.sendto(datagram, target)
                if rng.random() < args.dup:
                    counts["duplicated"] += 1
                    udp.sendto(datagram, target)
                if held is not None:
                    udp.sendto(held, target)
                    held = None

        slots += 1
        quiet = time.monotonic() - last_feedback
        check(quiet < args.hbtimeout, f"no feedback for {args.hbtimeout} s")
        if slots > 2048 and quiet >= 0.5 and time.monotonic() - last_heartbeat >= 0.5:
            counts["heartbeats"] += 1
            gap = new_gap(gap, least, 100_000, threshold, slower, faster)
            last_heartbeat, slots = time.monotonic(), 0
        now = time.perf_counter()
        change, last = gap - (now - last) * 1e6, now
        if debt > 0 or change > 0:
            debt += change
        most_debt = max(most_debt, debt)
        pause(max(debt, 0))
        if send and send[1] == LAST:
            before = time.perf_counter()  # extra, so it is no part of the elapsed time of the next slot
            pause(10 * most_debt)
            last += time.perf_counter() - before
    udp.close()  # a datagram still held is dropped: it would stray into the next file
    tcp.settimeout(SILENCE)
    counts["files"] += 1
    counts["early_stops"] += highest < count
    counts["least_gap_us"], counts["final_gap_us"] = least, round(gap, 1)


def client_of(args, rng, tcp, counts):
    inbox = bytearray()
    revision(tcp, inbox)
    challenge = rng.randbytes(64)
    tcp.sendall(challenge)
    answer = read_exact(tcp, inbox, 16, "the proof")
    good = answer == proof(challenge, os.fsencode(args.secret))
    tcp.sendall(b"\0" if good else b"\1")
    check(good, "the client has another secret")
    while True:
        name = read_string(tcp, inbox, (b"\n", b"\0"), 1024, "a request")
        if name is None:
            return
        check(name, "an empty request")
        counts["requests"] += 1
        files = shares(args.folder)
        if name == b"*":
            names = b"".join(n + b"\0" for n in files)
            tcp.sendall(struct.pack("10s10s", b"%d" % len(names), b"%d" % len(files)))
            said = read_exact(tcp, inbox, 8, "got size")
            check(said == b"got size", f"{said} instead of got size")
            tcp.sendall(names)
            said = read_exact(tcp, inbox, 8, "got list")
            check(said == b"got list", f"{said} instead of got list")
        elif name == b"!#DIR??":
            pairs = b"".join(b"%b\0%d\0" % pair for pair in files.items())
            tcp.sendall(b"%d\0" % len(files) + pairs)
            said = read_exact(tcp, inbox, 1, "the end of the listing")
            check(said == b"\0", f"{said} instead of 0 after the listing")
        elif name not in files:  # a path is never in there
            tcp.sendall(b"\x08")
        else:
            with open(os.path.join(os.fsencode(args.folder), name), "rb") as file:
                content = file.read()
            tcp.sendall(b"\0")
            transfer(args, rng, tcp, inbox, counts, content)


def serve(args):
    rng = random.Random(args.seed)
    server = socket.create_server(("127.0.0.1", args.port))
    print(f"listening {server.getsockname()[1]}", flush=True)
    while True:
        server.settimeout(SILENCE)
        try:
            tcp, _ = server.accept()
        except socket.timeout:
            raise Failure(f"no client for {SILENCE} s") from None
        counts = dict.fromkeys(("requests", "files", "blocks", "retransmitted", "restarts", "error_reports",
                                "heartbeats", "early_stops", "dropped", "duplicated", "held"), 0)
        signal.alarm(LIMIT)
        try:
            client_of(args, rng, tcp, counts)
        except (Failure, OSError) as error:
            if args.once:
                raise
            print(f"ttp.py: {error}", file=sys.stderr, flush=True)
        finally:
            signal.alarm(0)
            tcp.close()
            print(json.dumps(counts), flush=True)
        if args.once:
            return


# ---------------------------------------------------------------- the client

def connect(args):
    signal.alarm(LIMIT)
    tcp, inbox = socket.create_connection((args.host, args.port), SILENCE), bytearray()
    revision(tcp, inbox)
    challenge = read_exact(tcp, inbox, 64, "the challenge")
    tcp.sendall(proof(challenge, os.fsencode(args.secret)))
    verdict = read_exact(tcp, inbox, 1, "the verdict on the secret")[0]
    check(verdict == 0, f"verdict {verdict} on the secret")
    return tcp, inbox


def disconnect(tcp, inbox):
    tcp.shutdown(socket.SHUT_WR)
    tcp.settimeout(2)
    try:
        while more(tcp, inbox, "the end"):
            pass
    except (Failure, ConnectionResetError):
        pass  # how the server ends is its own affair, only it must have nothing more to say
    check(not inbox, f"{len(inbox)} bytes nobody asked for: {bytes(inbox[:40])}")


def number(text, what):
    check(text and text.isdigit(), f"{what} is {text}")
    return int(text)


def names_of_all(tcp, inbox):
    tcp.sendall(b"*\n")
    sizes = read_exact(tcp, inbox, 20, "the sizes of the list")
    length, count = (number(s.rstrip(b"\0"), "a size of the list") for s in (sizes[:10], sizes[10:]))
    tcp.sendall(b"got size")
    names = read_exact(tcp, inbox, length, "the list")
    tcp.sendall(b"got list")
    check(names.count(b"\0") == count, f"{names.count(0)} names, not {count}, in the list")
    check(not names or names[-1] == 0, "the last name of the list has no NUL")
    return names.split(b"\0")[:-1]


def gaps(arrivals):
    """Mean gap of the first 50 datagrams and the least of any 50 in a row, in microseconds."""
    means = [(b - a) * 1e6 / 50 for a, b in zip(arrivals, arrivals[50:])]
    return (round(means[0]), round(min(means))) if means else (None, None)


def fetch(args, rng, tcp, inbox, name):
    out = os.path.basename(name)
    check(out and out not in (b".", b".."), f"cannot write a file of the name {name}")
    start = time.perf_counter()
    tcp.sendall(name + b"\n")
    verdict = read_exact(tcp, inbox, 1, "the answer to a name")[0]
    check(verdict == 0, f"answer {verdict:#04x} to {name.decode('utf-8', 'backslashreplace')}")
    tcp.sendall(struct.pack(">IIIHHHH", args.block, args.rate, THRESHOLD, *SLOWER, *FASTER))
    size, block_size, count, _epoch = struct.unpack(">QIII", read_exact(tcp, inbox, 20, "the file's size"))
    check(block_size == args.block, f"block size {block_size}, not {args.block}")
    check(count == -(-size // block_size), f"{count} blocks for {size} bytes in blocks of {block_size}")
    check(not inbox, f"{len(inbox)} bytes too many after the file's size")
    # A socket of its own for each file, opened only now that the server has read the STOP of the file
    # before: nothing in a datagram says which file it is of.
    udp = udp_socket(tcp.getsockname()[0], args.udp_port)
    udp.setblocking(False)
    udp_port = udp.getsockname()[1]
    tcp.sendall(struct.pack(">H", udp_port))

    content, have, left = bytearray(size), bytearray(count + 1), count
    next_block, first_missing = 1, 1
    wanted, ever_wanted = [], set()  # the request list, and all numbers asked for up to now
    total = duplicates = requests = restarts = ignored = 0
    interval_requests = interval_blocks = 0
    error, error_reports = 0.0, 0
    restart_until = head = wire_end = 0  # a pending RESTART: its end at the latest, the blocks to ignore
    last_update = last_new = time.monotonic()
    source, arrivals = None, []

    def ask():
        """Send the request list, or RESTART when it is too long."""
        nonlocal wanted, requests, restarts, interval_requests, restart_until, head, wire_end, next_block
        wanted = [n for n in wanted if not have[n]]
        interval_requests += len(wanted)
        if len(wanted) >= MANY:
            restarts += 1
            tcp.sendall(struct.pack(">HHII", RESTART, 0, first_missing, 0))
            wanted = []
            head = next_block - 1
            wire_end = head + int(0.5 * args.rate / (8 * block_size))
            next_block = first_missing  # the next one sent is after it, so it will be asked for
            restart_until = time.monotonic() + 1
        elif wanted:
            requests += len(wanted)
            ever_wanted.update(wanted)
            tcp.sendall(b"".join(struct.pack(">HHII", RETRANSMIT, 0, n, 0) for n in wanted))

    finished = count == 0  # an empty file has no block to wait for
    while not finished:
        try:
            datagram, sender = udp.recvfrom(65536)
        except BlockingIOError:
            ready = select.select([udp, tcp], [], [], SILENCE)[0]
            check(ready, f"{SILENCE} s of silence, {left} blocks missing")
            check(tcp not in ready, "the server wrote or closed in the middle of a file")
            continue
        now = time.monotonic()
        check(now - last_new < SILENCE, f"nothing new for {SILENCE} s, {left} blocks missing")
        source = source or sender
        check(sender == source and sender[0] == tcp.getpeername()[0], f"data from {sender}, not {source}")
        check(len(datagram) == 6 + block_size, f"datagram of {len(datagram)} bytes, not {6 + block_size}")
        block, kind = struct.unpack(">IH", datagram[:6])
        check(1 <= block <= count, f"block {block} of {count}")
        check(kind in (ORIGINAL, AGAIN, LAST), f"block {block} of type {kind:#x}")
        check(kind != LAST or block == count, f"X on block {block} of {count}")
        check(kind != ORIGINAL or block != count, "O on the last block")
        check(kind != AGAIN or block in ever_wanted, f"block {block} as R, never asked for")
        if rng.random() < args.loss:
            continue
        arrivals.append(time.perf_counter())
        total += 1
        interval_blocks += 1
        if restart_until and (now > restart_until or kind != AGAIN and not head < block <= wire_end):
            restart_until = 0  # the server has gone back (or the time of what was on the wire is over)
        if restart_until and head < block <= wire_end:
            ignored += 1
        else:
            at = (block - 1) * block_size
            piece = datagram[6:6 + min(block_size, size - at)]  # past the end of the file is junk
            if have[block]:
                duplicates += 1
                check(content[at:at + len(piece)] == piece, f"block {block} came with another content")
            else:
                content[at:at + len(piece)] = piece
                have[block], left, last_new = 1, left - 1, now
                while first_missing <= count and have[first_missing]:
                    first_missing += 1
            if kind != AGAIN and block >= next_block:  # only originals move the head
                wanted += range(next_block, min(block, next_block + TABLE - len(wanted)))
                next_block = block + 1
            if kind == LAST:
                finished = left == 0
                if left:
                    missing = (n for n in range(first_missing, count) if not have[n])
                    wanted += [n for n, _ in zip(missing, range(TABLE - len(wanted)))]
                    ask()
        if total % 50 == 0 and now - last_update >= 0.35:
            ask()
            share = interval_requests / (1 + interval_requests + interval_blocks)
            error = 0.25 * error + 0.75 * 50_000 * share
            error_reports += 1
            tcp.sendall(struct.pack(">HHII", ERROR_RATE, 0, 0, int(error)))
            interval_requests = interval_blocks = 0
            last_update = now
    tcp.sendall(struct.pack(">HHII", STOP, 0, 0, 0))
    udp.close()
    with open(os.path.join(os.fsencode(args.into), out), "wb") as file:
        file.write(content)
    first_gap, least_gap = gaps(arrivals)
    print(json.dumps({
        "name": name.decode("utf-8", "backslashreplace"), "bytes": size, "blocks": count,
        "duplicates": duplicates, "requests": requests, "restarts": restarts,
        "seconds": round(time.perf_counter() - start, 3), "datagrams": total, "ignored": ignored,
        "error_reports": error_reports, "udp_port": udp_port, "asked_gap_us": int(8e6 * block_size / args.rate),
        "first_gap_us": first_gap, "least_gap_us": least_gap}), flush=True)


def get(args):
    rng = random.Random(args.seed)
    check(0 < args.block <= 65501 and 0 < args.rate < 2**32, "--block or --rate out of range")
    tcp, inbox = connect(args)
    for name in map(os.fsencode, args.names):
        for each in names_of_all(tcp, inbox) if name == b"*" else [name]:
            fetch(args, rng, tcp, inbox, each)
    disconnect(tcp, inbox)


def listing(args):
    tcp, inbox = connect(args)
    tcp.sendall(b"!#DIR??\n")
    texts = []
    while not texts or len(texts) < 1 + 2 * number(texts[0], "the number of files"):
        text = read_string(tcp, inbox, (b"\0",), 4096, "the listing")
        check(text is not None, "connection closed in the listing")
        texts.append(text)
    tcp.sendall(b"\0")
    files = [{"name": n.decode("utf-8", "backslashreplace"), "bytes": number(s, "a size in the listing")}
             for n, s in zip(texts[1::2], texts[2::2])]
    disconnect(tcp, inbox)
    for file in files:
        print(json.dumps(file), flush=True)


parser = argparse.ArgumentParser(description="Tsunami v1.1 peer for tests")
commands = parser.add_subparsers(dest="command", required=True)
server, getter, lister = (commands.add_parser(name) for name in ("serve", "get", "list"))
server.add_argument("folder")
server.add_argument("--port", type=int, default=0)
server.add_argument("--dup", type=float, default=0.0)
server.add_argument("--reorder", type=float, default=0.0)
server.add_argument("--hbtimeout", type=float, default=15.0)
server.add_argument("--once", action="store_true", help="end after the first client")
for command in getter, lister:
    command.add_argument("host")
    command.add_argument("port", type=int)
getter.add_argument("names", nargs="+", help="* is every file the server names")
getter.add_argument("--into", required=True)
getter.add_argument("--block", type=int, default=1024)
getter.add_argument("--rate", type=int, default=100_000_000)
getter.add_argument("--udp-port", type=int, default=0)
for command in server, getter:
    command.add_argument("--loss", type=float, default=0.0)
    command.add_argument("--seed", type=int, default=1)
for command in server, getter, lister:
    command.add_argument("--secret", default="kitten")
args = parser.parse_args()
signal.signal(signal.SIGALRM, too_long)
assert proof(bytes(range(64)), b"kitten").hex() == "2ef1fa32913c8c342201761df3e1873e"
try:
    check(args.secret, "an empty secret")
    {"serve": serve, "get": get, "list": listing}[args.command](args)
except (Failure, OSError) as error:
    print(f"ttp.py: {error}", file=sys.stderr)
    sys.exit(1)
