# An independent peer of the RBUDP v1 file programs, for interoperability tests on loopback.
# The facts are from RBUDP 1.0 as described in docs/protocols/rbudp.md; no code is shared with ours.
import argparse, os, random, select, socket, struct, sys, threading, time

LIMIT = 2**31 - 1  # v1 keeps sizes and packet numbers in a signed 32-bit int


class Failure(Exception):
    pass


def check(condition, reason):
    if not condition:
        raise Failure(reason)


def give_up():
    print("rbudp.py: timeout: not finished after 30 s", file=sys.stderr, flush=True)
    os._exit(1)


def read_exact(tcp, length, what, eof_ok=False):
    data = b""
    while len(data) < length:
        piece = tcp.recv(length - len(data))
        if eof_ok and not piece and not data:
            return None
        check(piece, f"connection closed after {len(data)} of {length} bytes of {what}")
        data += piece
    return data


def udp_socket(port):
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        udp.setsockopt(socket.SOL_SOCKET, option, 8 * 1024 * 1024)
    udp.bind(("127.0.0.1", port))
    return udp


def listen(port):
    """TCP and UDP on `port`. 0: an even port outside the range the system hands out by itself,
    with port + 1 free for UDP too (even, so that two such senders do not take each other's)."""
    for _ in range(1000):
        chosen = port or random.SystemRandom().randrange(20000, 32000, 2)
        try:
            tcp, udp = socket.create_server(("127.0.0.1", chosen)), udp_socket(chosen)
            if not port:
                udp_socket(chosen + 1).close()
            return tcp, udp, chosen
        except OSError:
            check(not port, f"port {port} is not free")
    raise Failure("no free port found")


def read_bitmap(tcp, count):
    """The packet numbers still missing, after checking the whole bitmap."""
    bitmap = read_exact(tcp, count // 8 + 2, "the bitmap")
    bits = [bitmap[1 + i // 8] >> (i % 8) & 1 for i in range(8 * (len(bitmap) - 1))]
    check(all(bits[count:]), "an unused bit of the bitmap is 0")
    missing = [i for i in range(count) if not bits[i]]
    check(bitmap[0] == (not missing), f"bitmap byte 0 is {bitmap[0]} with {len(missing)} packets missing")
    return missing


def send_block(args, rng, tcp, udp, target, content):
    number_format = ">i" if args.big_endian else "<i"
    count = -(-len(content) // args.payload)
    on_wire = set()   # numbers sent at least once: nothing else can have arrived
    held = []         # [datagrams still to pass, number, is an extra copy]
    was_late = set()  # numbers that went past a DONE, once each: the receiver still lacks them then
    rounds = 0        # and asks again, so no datagram can stray into the next block
    missing = list(range(count))
    tcp.sendall(struct.pack(">Q", len(content)))

    def emit(number):
        data = content[number * args.payload:(number + 1) * args.payload]
        udp.sendto(struct.pack(number_format, number) + data, target)
        on_wire.add(number)

    while True:
        start = time.perf_counter()
        for slot, number in enumerate(missing):
            while time.perf_counter() - start < slot * args.rate_gap_us / 1e6:
                pass  # busy wait on an absolute schedule, like the original
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
        late = [e for e in held if not e[2] and e[1] not in was_late and rng.random() < 0.2]
        was_late.update(e[1] for e in late)
        for entry in held:
            if entry not in late:
                emit(entry[1])
        check(not select.select([tcp], [], [], 0)[0], "the receiver wrote or closed before DONE")
        tcp.sendall(struct.pack(number_format, rounds) + b"EEE\0")
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
            print(f"sent {len(content)} bytes in {rounds} rounds", flush=True)
            return


def send(args):
    with open(args.file, "rb") as file:
        content = file.read()
    check(len(content) <= LIMIT, "file too large for one block")
    rng = random.Random(args.seed)
    server, udp, port = listen(args.port)
    print(f"listening {port}", flush=True)
    tcp, address = server.accept()
    while True:
        request = read_exact(tcp, 256, "the request", eof_ok=True)
        if request is None or request == bytes(256):
            return
        path, nul, _junk = request.partition(b"\0")
        check(path and nul, "the request has no path or no NUL")
        print("asked " + path.decode("utf-8", "backslashreplace"), flush=True)
        send_block(args, rng, tcp, udp, (address[0], port + 1), content)
        if args.once:  # end; first take in what the receiver still writes, or closing would reset it
            tcp.shutdown(socket.SHUT_WR)
            while select.select([tcp], [], [], 1)[0] and tcp.recv(256):
                pass
            return


def connect(host, port):
    until = time.monotonic() + 5  # the original retries without a pause for 5 s
    while True:
        tcp = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if tcp.connect_ex((host, port)) == 0 and tcp.getsockname() != tcp.getpeername():
            return tcp  # (the second condition: on loopback a socket can connect to itself)
        tcp.close()
        check(time.monotonic() < until, "no connection within 5 s")


def recv(args):
    rng = random.Random(args.seed)
    path = os.fsencode(args.path)
    check(0 < len(path) < 256, "the path must have 1 to 255 bytes")
    udp = udp_socket(args.port + 1)
    udp.connect((args.host, args.port))  # datagrams from elsewhere are dropped
    udp.setblocking(False)
    tcp = connect(args.host, args.port)
    tcp.sendall(path + b"\0" + bytes(rng.randrange(1, 256) for _ in range(255 - len(path))))

    size = struct.unpack(">Q", read_exact(tcp, 8, "the size"))[0]
    check(size <= LIMIT, f"size {size} is more than v1 can send")
    count = -(-size // args.payload)
    content = bytearray(size)
    have = [False] * count + [True] * (8 * (count // 8 + 1) - count)  # unused bits are 1
    number_format, rounds, control, replay = "<i", 0, b"", []

    def store(datagram):
        nonlocal number_format
        check(len(datagram) >= 4, f"datagram of {len(datagram)} bytes")
        if not 0 <= struct.unpack(number_format, datagram[:4])[0] < count:
            check(number_format == "<i", f"number {datagram[:4].hex()} out of range after the flip")
            number_format = ">i"  # from here to the end of the block
        number = struct.unpack(number_format, datagram[:4])[0]
        check(0 <= number < count, f"number {datagram[:4].hex()} out of range in both byte orders")
        at = number * args.payload
        length = min(args.payload, size - at)
        check(len(datagram) == 4 + length, f"packet {number} has {len(datagram) - 4} bytes, not {length}")
        content[at:at + length] = datagram[4:]
        have[number] = True

    bitmap = bytearray(count // 8 + 2)
    while bitmap[0] == 0:
        if tcp in select.select([udp, tcp], [], [])[0]:
            piece = tcp.recv(4096)
            check(piece, "connection closed in the middle of a block")
            control += piece
            check(len(control) <= 8, "more than DONE before the bitmap was sent")
        while True:  # datagrams before control bytes, always
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
        if len(control) == 8:
            done = [struct.unpack(f, control[:4])[0] for f in ("<i", ">i")]
            check(rounds in done and control[4:7] == b"EEE", f"in round {rounds} DONE is {control.hex()}")
            bitmap[0] = all(have)
            for number, bit in enumerate(have):
                bitmap[1 + number // 8] |= bit << number % 8
            tcp.sendall(bitmap)
            control, rounds = b"", rounds + 1
    with open(args.out, "wb") as file:
        file.write(content)
    try:
        tcp.sendall(bytes(256))  # end of the file list; the sender may have gone already
    except OSError:
        pass
    print(f"received {size} bytes in {rounds} rounds", flush=True)


parser = argparse.ArgumentParser(description="RBUDP v1 peer for tests")
commands = parser.add_subparsers(dest="command", required=True)
sender, receiver = commands.add_parser("send"), commands.add_parser("recv")
receiver.add_argument("host")
for command, names in (sender, ["file"]), (receiver, ["path", "out"]):
    command.add_argument("port", type=int)
    for name in names:
        command.add_argument(name)
    command.add_argument("payload", type=int)
    command.add_argument("--loss", type=float, default=0.0)
    command.add_argument("--duplicate", type=float, default=0.0)
    command.add_argument("--seed", type=int, default=1)
sender.add_argument("--reorder", type=float, default=0.0)
sender.add_argument("--rate-gap-us", type=float, default=0.0)
sender.add_argument("--big-endian", action="store_true")
sender.add_argument("--once", action="store_true", help="end after the first block, read no further request")
args = parser.parse_args()
watchdog = threading.Timer(30, give_up)
watchdog.daemon = True
watchdog.start()
try:
    check(args.payload > 0, "the payload must be positive")
    (send if args.command == "send" else recv)(args)
except (Failure, OSError) as error:
    print(f"rbudp.py: {error}", file=sys.stderr)
    sys.exit(1)
