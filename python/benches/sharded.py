"""What do three nodes gain over one? Each is a network namespace with a link of its own to a server in this one.

    FARHAUL=target/release/farhaul python sharded.py RATE [RUNS [FILES]]

Needs root. The links are relays of `farhaul wan`, which with three senders and the receiver must fit into this machine: two cores
carry about 600 Mbit/s of all that.
"""

import contextlib
import ctypes
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import farhaul

NODES = 3
BYTES = 180_000_000


def run(*words):
    subprocess.run(words, check=True)


def enter(numbers):
    """A worker goes to its node."""
    namespace = os.open(f"/run/netns/farhaul-{numbers.get()}", os.O_RDONLY)
    if ctypes.CDLL(None, use_errno=True).setns(namespace, 0) != 0:
        raise OSError(ctypes.get_errno(), "setns")


@contextlib.contextmanager
def node(number, port, rate):
    """A host that finds the server at its own address, behind its link."""
    name = f"farhaul-{number}"
    run("ip", "netns", "add", name)
    try:
        run("ip", "link", "add", f"farhaul{number}", "type", "veth", "peer", "name", "eth0", "netns", name)
        run("ip", "addr", "add", f"10.77.{number}.1/24", "dev", f"farhaul{number}")
        run("ip", "link", "set", f"farhaul{number}", "up")
        run("ip", "-n", name, "addr", "add", f"10.77.{number}.2/24", "dev", "eth0")
        for device in ("eth0", "lo"):
            run("ip", "-n", name, "link", "set", device, "up")
        words = ["wan", "relay", "--listen", "127.0.0.1:17992", "--to", f"10.77.{number}.1:{port}"]
        link = ["--rate", rate, "--rtt", "20ms", "--mtu", "9000"]
        command = ["ip", "netns", "exec", name, os.environ["FARHAUL"], *words, *link]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as relay:
            try:
                yield
            finally:
                relay.kill()
    finally:
        run("ip", "netns", "del", name)


def copied(tree, share, shards, pool):
    for file in share.rglob("*"):
        if file.is_file():
            file.unlink()
    began = time.monotonic()
    farhaul.copy_sharded(tree, "127.0.0.1:17992::in/", shards=shards, executor=pool, trust_any=True)
    return time.monotonic() - began


def main(rate, runs=3, files=30):
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm")))
        tree, share = folder / "tree", folder / "share"
        tree.mkdir(), share.mkdir()
        for number in range(int(files)):
            (tree / f"f{number}").write_bytes(os.urandom(BYTES // int(files)))
        server = stack.enter_context(farhaul.serve({"in": f"{share}:rw"}, allow="any", listen="0.0.0.0:0"))
        context = get_context("spawn")
        numbers = context.Queue()
        for number in range(NODES):
            stack.enter_context(node(number, server.port, rate))
            numbers.put(number)
        pool = ProcessPoolExecutor(NODES, mp_context=context, initializer=enter, initargs=(numbers,))
        stack.enter_context(pool)
        pairs = []
        # The first is not counted: workers start, keys are made.
        for counts in [False] + [True] * int(runs):
            pair = [copied(tree, share, shards, pool) for shards in (1, NODES)]
            if counts:
                pairs.append(pair)
        one, three = (statistics.median(side) for side in zip(*pairs))
        ratio = statistics.median(a / b for a, b in pairs)
        print(f"{rate}, {files} files: one node {one:.2f} s, three {three:.2f} s, ratio of pairs {ratio:.2f} ({len(pairs)} pairs)")


if __name__ == "__main__":
    main(*sys.argv[1:])
