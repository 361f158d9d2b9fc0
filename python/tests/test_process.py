"""What of interrupts, forks and the interpreter's end? Each in an interpreter of its own."""

import subprocess
import sys
import textwrap

import pytest

LONG = """
import farhaul, os, signal, sys, threading
long = farhaul.Scenario(
    farhaul.Path(rate="10Gbit", rtt="100ms"), farhaul.Flow(), duration="100000s",
    sample="1s", queue_sample="1s",
)
"""


def python(program, timeout=60):
    """Its end and what it printed."""
    text = LONG + textwrap.dedent(program)
    return subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=timeout, check=False
    )


def test_an_interrupt_ends_a_call():
    ran = python(
        """
        # Whoever runs the tests may ignore it, and so would this.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            farhaul.simulate(long)
        except KeyboardInterrupt:
            print("interrupted", threading.active_count())
        """
    )
    assert ran.stdout.split()[0] == "interrupted", ran.stderr
    assert ran.returncode == 0


@pytest.mark.parametrize("end", ["pass", "sys.exit(3)", "raise LookupError"])
def test_the_interpreter_ends_while_calls_run(end, tmp_path):
    ran = python(
        f"""
        server = farhaul.serve({{"x": {str(tmp_path)!r}}}, allow="any", listen="127.0.0.1:0")
        started = threading.Event()

        class Law(farhaul.CongestionController):
            def on_ack(self, ack):
                started.set()

            def on_loss(self, loss):
                pass

            def allowance(self):
                return farhaul.Allowance(rate=1e7)

        slow = farhaul.Scenario(
            farhaul.Path(rate="1Gbit", rtt="10ms"), farhaul.Flow(law=Law), duration="100000s",
            sample="1s", queue_sample="1s",
        )
        for scenario in (long, slow):
            threading.Thread(target=farhaul.simulate, args=(scenario,), daemon=True).start()
        started.wait(20)
        print("running", flush=True)
        {end}
        """
    )
    assert ran.stdout == "running\n", ran.stderr
    assert ran.returncode == {"pass": 0, "sys.exit(3)": 3}.get(end, 1), ran.stderr
    assert "panicked" not in ran.stderr and "Fatal" not in ran.stderr


def test_a_process_forked_from_an_idle_one_works():
    ran = python(
        """
        short = farhaul.Scenario(farhaul.Path(rate="10Mbit", rtt="10ms"), farhaul.Flow(), duration="1s")

        def hash_of(seed):
            return farhaul.simulate(short, seeds=seed).trace_hash

        import multiprocessing
        hashes = [hash_of(seed) for seed in range(1, 5)]
        with multiprocessing.get_context("fork").Pool(2) as pool:
            print(pool.map(hash_of, range(1, 5)) == hashes)
        """
    )
    assert ran.stdout == "True\n", ran.stderr


def test_a_process_forked_from_a_busy_one_is_refused_and_disturbs_nobody(tmp_path):
    ran = python(
        f"""
        short = farhaul.Scenario(farhaul.Path(rate="10Mbit", rtt="10ms"), farhaul.Flow(), duration="1s")
        server = farhaul.serve({{"x": {str(tmp_path)!r}}}, allow="any", listen="127.0.0.1:0")
        child = os.fork()
        if child == 0:
            seen = []
            for call in (lambda: farhaul.simulate(short), server.stop):
                try:
                    call()
                except farhaul.errors.UsageError as error:
                    seen.append("fork" in error.text and bool(error.fix))
            sys.exit(0 if seen == [True, True] else 1)
        print(os.waitpid(child, 0)[1])
        here = {str(tmp_path)!r} + "/a"
        open(here, "w").write("x")
        farhaul.copy(f"127.0.0.1:{{server.port}}::x/a", here + "2", trust_any=True)
        server.stop()
        print(open(here + "2").read())
        """
    )
    assert ran.stdout == "0\nx\n", ran.stderr + ran.stdout


def test_other_signals_are_those_of_the_program():
    ran = python(
        """
        import time
        seen = []
        signal.signal(signal.SIGTERM, lambda *_: seen.append(1))
        cancel = farhaul.Cancel()
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM)).start()
        threading.Timer(1.0, cancel.cancel).start()
        try:
            farhaul.simulate(long, cancel=cancel)
        except farhaul.errors.Interrupted:
            print(len(seen))
        """
    )
    assert ran.stdout == "1\n", ran.stderr
