# An independent peer of the RBUDP v1 file programs, for interoperability tests on loopback.
# The facts are from RBUDP 1.0 as described in docs/protocols/rbudp.md; no code is shared with ours.
import argparse, os, random, select, socket, struct, sys, time

DEADLINE = time.monotonic() + 30
LIMIT = 2**31 - 1  # v1 keeps sizes and packet numbers in a signed 32-bit int


class Failure(Exception):
    pass


def check(condition, reason):
    if not condition:
        raise Failure(reason)


def remaining():
    left = DEADLINE - time.monotonic()
    check(left > 0, "timeout: not finished after 30 s")
    return left


def say(line):
    print(line, flush=True)


def read_exact(tcp, length, what, eof_ok=False):
    data = b""
    while len(data) < length:
        tcp.settimeout(remaining())
        piece = tcp.recv(length - len(data))
        if not piece and not data and eof_ok:
            return None
        check(piece, f"connection closed after {len(data)} of {length} bytes of {what}")
        data += piece
    return data


def write_all(tcp, data):
    tcp.settimeout(remaining())
    tcp.sendall(data)


def udp_socket(port):
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            udp.setsockopt(socket.SOL_SOCKET, option, 8 * 1024 * 1024)
        udp.bind(("127.0.0.1", port))
    except OSError:
        udp.close()
        raise
    return udp


# ---- sender ----

def listen(port):
    """TCP and UDP on `port`. 0: an even port, outside the range the system hands out by itself,
    with port + 1 free for UDP too (even, so that two such senders do not take each other's)."""
    for attempt in range(1000):
        chosen = port or random.SystemRandom().randrange(20000, 32000, 2)
        tcp = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        udp = None
        try:
            tcp.bind(("127.0.0.1", chosen))
            tcp.listen(1)
            udp = udp_socket(chosen)
            if not port:
                udp_socket(chosen + 1).close()
            return tcp, udp, chosen
        except OSError:
            tcp.close()
            if udp:
                udp.close()
            if port:
                raise
    raise Failure("no free port found")


def read_bitmap(tcp, count):
    """The packet numbers still missing, after checking the whole bitmap."""
    bitmap = read_exact(tcp, count // 8 + 2, "the bitmap")
    bits = [bitmap[1 + i // 8] >> (i % 8) & 1 for i in range(8 * (len(bitmap) - 1))]
    check(bitmap[0] in (0, 1), f"bitmap byte 0 is {bitmap[0]}")
    check(all(bits[count:]), "an unused bit of the bitmap is 0")
    missing = [i for i in range(count) if not bits[i]]
    check((bitmap[0] == 1) == (not missing), f"bitmap byte 0 is {bitmap[0]}, {len(missing)} bits are 0")
    return missing


def send_block(args, rng, tcp, udp, target, content):
    order = ">" if args.big_endian else "<"
    count = -(-len(content) // args.payload)
    check(len(content) <= LIMIT, "file too large for one block")
    write_all(tcp, struct.pack(">Q", len(content)))
    on_wire = set()    # numbers sent at least once: nothing else can have arrived
    held = []          # [datagrams still to pass, number, is an extra copy]
    was_late = set()   # numbers that went past a DONE, allowed once each: the receiver then still lacks
    missing = list(range(count))  # them and asks again, so nothing can stray into the next block
    rounds = 0

    def emit(number):
        at = number * args.payload
        udp.settimeout(remaining())
        udp.sendto(struct.pack(order + "i", number) + content[at:at + args.payload], target)
        on_wire.add(number)

    while True:
        start = time.perf_counter()
        for slot, number in enumerate(missing):
            while time.perf_counter() - start < slot * args.rate_gap_us / 1e6:
                remaining()  # busy wait on an absolute schedule, like the original
            if rng.random() >= args.loss:
                if rng.random() < args.reorder:
                    held.append([rng.randint(1, 8), number, False])
                else:
                    emit(number)
                    if rng.random() < args.duplicate:
                        held.append([rng.randint(0, 8), number, True])
            for entry in held:
                entry[0] -= 1
            for entry in [e for e in held if e[0] < 0]:
                held.remove(entry)
                emit(entry[1])
        late = []
        for entry in held:
            if not entry[2] and entry[1] not in was_late and rng.random() < 0.2:
                late.append(entry)
                was_late.add(entry[1])
            else:
                emit(entry[1])
        check(not select.select([tcp], [], [], 0)[0], "the receiver wrote or closed before DONE")
        write_all(tcp, struct.pack(order + "i", rounds) + b"EEE\0")
        rounds += 1
        held = []
        for entry in late:  # either right after DONE or somewhere in the next round
            if rng.random() < 0.5:
                emit(entry[1])
            else:
                held.append(entry)
        before, missing = set(missing), read_bitmap(tcp, count)
        check(before.issuperset(missing), "the bitmap lost a packet it had reported")
        check(len(on_wire.union(missing)) == count, "the bitmap reports a packet that was never sent")
        if not missing:
            say(f"sent {len(content)} bytes in {rounds} rounds, {len(was_late)} datagrams after DONE")
            return


def send(args):
    with open(args.file, "rb") as file:
        content = file.read()
    rng = random.Random(args.seed)
    server, udp, port = listen(args.port)
    say(f"listening {port}")
    server.settimeout(remaining())
    tcp, address = server.accept()
    while True:
        request = read_exact(tcp, 256, "the request", eof_ok=True)
        if request is None or request == bytes(256):
            break
        path, nul, _junk = request.partition(b"\0")
        check(path and nul, "the request has no path or no NUL")
        say("asked " + path.decode("utf-8", "backslashreplace"))
        send_block(args, rng, tcp, udp, (address[0], port + 1), content)
        if args.once:  # close, but let what the receiver still writes arrive (no reset)
            try:
                tcp.shutdown(socket.SHUT_WR)
                tcp.settimeout(min(1, remaining()))
                while tcp.recv(4096):
                    pass
            except OSError:
                pass
            break


# ---- receiver ----

def connect(host, port):
    until = time.monotonic() + 5  # the original retries without a pause for 5 s
    while True:
        tcp = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            tcp.settimeout(remaining())
            tcp.connect((host, port))
            if tcp.getsockname() != tcp.getpeername():  # loopback can connect a socket to itself
                return tcp
        except ConnectionRefusedError:
            check(time.monotonic() < until, "connection refused for 5 s")
        tcp.close()


def recv(args):
    rng = random.Random(args.seed)
    udp = udp_socket(args.port + 1)
    udp.connect((args.host, args.port))  # datagrams from elsewhere are dropped
    udp.setblocking(False)
    tcp = connect(args.host, args.port)
    path = os.fsencode(args.path)
    check(0 < len(path) < 256, "the path must have 1 to 255 bytes")
    write_all(tcp, path + b"\0" + bytes(rng.randrange(1, 256) for _ in range(255 - len(path))))

    size = struct.unpack(">Q", read_exact(tcp, 8, "the size"))[0]
    check(size <= LIMIT, f"size {size} is more than v1 can send")
    count = -(-size // args.payload)
    content = bytearray(size)
    have = [False] * count + [True] * (8 * (count // 8 + 1) - count)  # unused bits are 1
    order, rounds, control, replay = "<", 0, b"", []

    def store(datagram):
        nonlocal order
        check(len(datagram) >= 4, f"datagram of {len(datagram)} bytes")
        number = struct.unpack(order + "i", datagram[:4])[0]
        if not 0 <= number < count and order == "<":  # other byte order, from here to the block's end
            order = ">"
            number = struct.unpack(order + "i", datagram[:4])[0]
        check(0 <= number < count, f"packet number {datagram[:4].hex()} out of range in this order")
        at = number * args.payload
        length = min(args.payload, size - at)
        check(len(datagram) == 4 + length, f"packet {number} has {len(datagram) - 4} bytes, not {length}")
        content[at:at + length] = datagram[4:]
        have[number] = True

    while True:
        readable = select.select([udp, tcp], [], [], remaining())[0]
        if tcp in readable:
            piece = tcp.recv(4096)
            check(piece, "connection closed in the middle of a block")
            control += piece
            check(len(control) <= 8, "bytes after DONE before the bitmap was sent")
        while True:  # datagrams before control bytes, always
            remaining()
            try:
                datagram = udp.recv(65536)
            except BlockingIOError:
                break
            if rng.random() < args.loss:
                continue
            store(datagram)
            if replay and rng.random() < 0.5:  # the second copy comes some datagrams later
                store(replay.pop(0))
            if rng.random() < args.duplicate:
                replay.append(datagram)
        if len(control) < 8:
            continue
        check(control[4:7] == b"EEE", f"DONE without EEE: {control.hex()}")
        check(rounds in struct.unpack("<i", control[:4]) + struct.unpack(">i", control[:4]),
              f"DONE of another round than {rounds}: {control.hex()}")
        control = b""
        rounds += 1
        bitmap = bytearray([all(have)]) + bytearray(count // 8 + 1)
        for number, bit in enumerate(have):
            bitmap[1 + number // 8] |= bit << number % 8
        write_all(tcp, bitmap)
        if all(have):
            break
    with open(args.out, "wb") as file:
        file.write(content)
    try:
        write_all(tcp, bytes(256))  # end of the file list; the sender may have gone already
    except OSError:
        pass
    say(f"received {size} bytes in {rounds} rounds")


def main():
    parser = argparse.ArgumentParser(description="RBUDP v1 peer for tests")
    commands = parser.add_subparsers(dest="command", required=True)
    s, r = commands.add_parser("send"), commands.add_parser("recv")
    s.add_argument("port", type=int)
    s.add_argument("file")
    r.add_argument("host")
    r.add_argument("port", type=int)
    r.add_argument("path")
    r.add_argument("out")
    for p in (s, r):
        p.add_argument("payload", type=int)
        p.add_argument("--loss", type=float, default=0.0)
        p.add_argument("--duplicate", type=float, default=0.0)
        p.add_argument("--seed", type=int, default=1)
    s.add_argument("--reorder", type=float, default=0.0)
    s.add_argument("--rate-gap-us", type=float, default=0.0)
    s.add_argument("--big-endian", action="store_true")
    s.add_argument("--once", action="store_true", help="end after the first block, read no further request")
    args = parser.parse_args()
    try:
        check(args.payload > 0, "the payload must be positive")
        (send if args.command == "send" else recv)(args)
    except (Failure, OSError) as error:
        print(f"rbudp.py: {error}", file=sys.stderr)
        sys.exit(1)


main()
