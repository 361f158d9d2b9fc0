"""What does Python cost? Each part prints a line of figures: medians of runs in turn, and their ratio.

    FARHAUL=target/release/farhaul python costs.py simulate|law|copy|sweep [RUNS]

`FARHAUL` is the program to compare with, built by the same profile as the wheel that is installed.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path as Folder

import farhaul
from farhaul import Allowance, CongestionController, Flow, Path, Scenario

#: Of the file that is copied, bytes.
SIZE = 4 << 30


def seconds(work):
    """How long it took, s."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def in_turn(theirs, ours, runs):
    """Medians of both, and of the ratios of pairs."""
    pairs = [(theirs(), ours()) for _ in range(runs)]
    command, package = (statistics.median(side) for side in zip(*pairs))
    ratio = statistics.median(b / a for a, b in pairs)
    return f"command {command:.3f}, package {package:.3f}, ratio of pairs {ratio:.3f} ({runs} pairs)"


def simulate(runs):
    """10 s of a flow at 10 Gbit/s, s."""
    scenario = Scenario(Path(rate="10Gbit", rtt="100ms", mtu=9000), Flow(), duration="10s", mtu=9000)
    with tempfile.TemporaryDirectory() as folder:
        file = Folder(folder) / "run.toml"
        file.write_text(scenario.to_toml())
        command = [os.environ["FARHAUL"], "sim", "run", str(file), "--json"]
        theirs = lambda: seconds(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))
        ours = lambda: seconds(lambda: farhaul.simulate(scenario))
        print("simulate, s:", in_turn(theirs, ours, runs))


class Aimd(CongestionController):
    """That of docs/python.md, which begins with a full link and counts its events."""

    events = 0

    def on_start(self, now, path):
        self.window, self.srtt = 1_300_000, path.srtt

    def on_ack(self, ack):
        Aimd.events += 1
        self.window += ack.path.datagram * ack.acked / self.window
        self.srtt = ack.path.srtt

    def on_loss(self, loss):
        Aimd.events += 1
        if loss.new_episode:
            self.window /= 2

    def allowance(self):
        window = getattr(self, "window", 15_000)
        return Allowance(window=window, rate=1.25 * window * 8 / getattr(self, "srtt", 0.1))


def law(runs):
    """Feedback events of a law in Python, per second."""
    for protocol in ("tcp", "haul"):
        scenario = Scenario(
            Path(rate="1Gbit", rtt="10ms"), Flow(protocol=protocol, law=Aimd), duration="10s"
        )
        rates = []
        for _ in range(runs):
            Aimd.events = 0
            took = seconds(lambda: farhaul.simulate(scenario, jobs=1))
            rates.append(Aimd.events / took)
        print(f"law, events/s, {protocol}: {statistics.median(rates):.0f} ({Aimd.events} events a run)")


def copy(runs):
    """A file to a server in another process over loopback, Gbit/s by the time of the call or command."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        share, source = Folder(folder) / "share", Folder(folder) / "data"
        share.mkdir()
        with source.open("wb") as file:
            for _ in range(SIZE >> 20):
                file.write(os.urandom(1 << 20))
        far_end = (
            "import farhaul, sys\n"
            f"with farhaul.serve({{'in': '{share}:rw'}}, allow='any', listen='127.0.0.1:0', no_sync=True) as s:\n"
            "    print(s.port, flush=True); sys.stdin.read()"
        )
        server = subprocess.Popen(
            [sys.executable, "-c", far_end], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        far = f"127.0.0.1:{server.stdout.readline().strip()}::in/data"
        given = [str(source), far, "--trust-any", "--json", "--quiet", "--lanes=1", "--path-memory=never"]

        def anew(work):
            (share / "data").unlink(missing_ok=True)
            return SIZE * 8 / 1e9 / seconds(work)

        run = lambda: subprocess.run([os.environ["FARHAUL"], "cp", *given], check=True, stdout=subprocess.DEVNULL)
        call = lambda: farhaul.copy(
            source, far, trust_any=True, lanes=1, path_memory="never", progress=lambda event: None
        )
        anew(run), anew(call)
        print("copy, Gbit/s:", in_turn(lambda: anew(run), lambda: anew(call), runs))
        server.stdin.close()
        server.wait()


def sweep(runs):
    """1,000 short cells on one worker by the same on two, s."""
    grid = Scenario(
        Path(rate="{rate}", rtt="{rtt}"),
        Flow(law="{law}"),
        name="grid",
        duration="1s",
        seeds="1..50",
        vary={
            "rate": ["20Mbit", "50Mbit", "100Mbit", "200Mbit", "300Mbit"],
            "rtt": ["10ms", "20ms"],
            "law": ["cubic", "reno"],
        },
    )

    def cells(workers):
        with tempfile.TemporaryDirectory() as folder:
            return seconds(lambda: farhaul.sweep(grid, folder, workers=workers))

    pairs = [(cells(1), cells(2)) for _ in range(runs)]
    one, two = (statistics.median(side) for side in zip(*pairs))
    ratio = statistics.median(a / b for a, b in pairs)
    print(f"sweep, s: one worker {one:.2f}, two {two:.2f}, ratio of pairs {ratio:.2f} ({runs} pairs)")


if __name__ == "__main__":
    part, *rest = sys.argv[1:] or ["law"]
    print(json.dumps({"version": farhaul.__version__, "python": sys.version.split()[0]}))
    {"simulate": simulate, "law": law, "copy": copy, "sweep": sweep}[part](int(rest[0]) if rest else 5)
