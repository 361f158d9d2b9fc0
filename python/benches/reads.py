"""What does a file system of fsspec cost over a long path? On the near host of an emulated path, beside a server on the far one.

    farhaul wan run --rate 10Gbit --rtt 100ms --loss 1% \
        --far "farhaul serve --share in=/dev/shm/far --allow any" -- python python/benches/reads.py 10.99.0.2

The file `/dev/shm/far/large` has 1 GiB or more.

Prints: the rate of a file read in order, of `farhaul.copy` of the same file, and their ratio; the time of random reads all at
once, and what they would take one after the other, from a few that did.
"""

import json
import os
import random
import statistics
import sys
import tempfile
import time

import farhaul
from farhaul.fs import FarhaulFileSystem

NAME = "in/large"
PIECE = 1 << 20


def timed(work):
    began = time.monotonic()
    result = work()
    return time.monotonic() - began, result


def size_of(fs):
    """Of a file on a server that may be starting."""
    until = time.monotonic() + 20
    while True:
        try:
            return fs.size(NAME)
        except farhaul.errors.UdpBlockedError:
            if time.monotonic() > until:
                raise


def in_order(fs):
    with fs.open(NAME) as file:
        total = 0
        while part := file.read(4 << 20):
            total += len(part)
    return total


def copied(host, folder):
    copy = os.path.join(folder, "copy")
    farhaul.copy(f"{host}::{NAME}", copy, trust_any=True)
    os.unlink(copy)


def main(host):
    fs = FarhaulFileSystem(host, trust_any=True, skip_instance_cache=True)
    size = size_of(fs)
    ratios, rates = [], []
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        for _ in range(3):
            fs.close()
            read, total = timed(lambda: in_order(fs))
            assert total == size, (total, size)
            copy, _ = timed(lambda: copied(host, folder))
            ratios.append(copy / read)
            rates.append((size * 8 / read / 1e9, size * 8 / copy / 1e9))
    at = random.Random(1).sample(range(size // PIECE), min(1_000, size // PIECE))
    starts = [index * PIECE for index in at]
    ends = [start + PIECE for start in starts]
    many, _ = timed(lambda: fs.cat_ranges([NAME] * len(at), starts, ends))
    few = 20
    one, _ = timed(lambda: [fs.cat_file(NAME, start, start + PIECE) for start in starts[:few]])
    fs.close()
    alone = one / few * len(at)
    report = {
        "in_order_gbps": [round(read, 2) for read, _ in rates],
        "copy_gbps": [round(copy, 2) for _, copy in rates],
        "in_order_over_copy": round(statistics.median(ratios), 3),
        "random_reads": len(at),
        "random_s": round(many, 2),
        "one_by_one_s": round(alone, 2),
        "times_faster": round(alone / many, 1),
    }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    assert farhaul.__version__
    main(sys.argv[1])
