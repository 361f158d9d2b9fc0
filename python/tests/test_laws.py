"""Does a law written in Python drive a flow as its Rust twin does?"""

import asyncio
import functools
import threading
import time

import pytest

import farhaul
from farhaul import Allowance, CongestionController, Flow, Path, ReceiverLaw, Scenario, errors


class Fixed(CongestionController):
    """A constant rate, as the registry's law `fixed`."""

    def __init__(self, rate=20e6):
        self.rate = rate

    def on_ack(self, ack):
        pass

    def on_loss(self, loss):
        pass

    def allowance(self):
        return Allowance(rate=self.rate)


class Aimd(CongestionController):
    """One datagram more per round trip, half as much after a loss."""

    def on_start(self, now, path):
        self.window = 10.0 * path.datagram

    def on_ack(self, ack):
        assert ack.acked > 0 and ack.path.srtt > 0 and ack.now > 0
        self.window += ack.path.datagram * ack.acked / self.window

    def on_loss(self, loss):
        if loss.new_episode:
            self.window /= 2

    def allowance(self):
        window = getattr(self, "window", 15_000)
        return Allowance(window=window, rate=2 * window * 8 / 0.02)


def over(law, duration="4s", **path):
    link = Path(**{"rate": "50Mbit", "rtt": "20ms", **path})
    flow = Flow(name="flow", law=law)
    return Scenario(link, flow, duration=duration, sample="1s", queue_sample="1s")


def goodput(result):
    return result.cases[0].flows[0]["goodput_bits_per_second"]["mean"]


def test_a_law_in_python_sends_as_it_says():
    for law, rate in [(Fixed, 20e6), (functools.partial(Fixed, 5e6), 5e6)]:
        result = farhaul.simulate(over(law))
        assert goodput(result) == pytest.approx(rate, rel=0.05)
        assert result.cases[0].flows[0]["law"] == "Fixed"


def test_a_law_fills_a_link_and_is_repeatable():
    first, second = (farhaul.simulate(over(Aimd, duration="10s")) for _ in range(2))
    assert 35e6 < goodput(first) < 50e6
    assert first.trace_hash == second.trace_hash


def test_several_laws_of_one_name_are_several():
    slow, fast = (functools.partial(Fixed, rate) for rate in (5e6, 20e6))
    both = Scenario(
        Path(rate="50Mbit", rtt="20ms"), [Flow(law=slow), Flow(law=fast)], duration="4s"
    )
    rates = [f["goodput_bits_per_second"]["mean"] for f in farhaul.simulate(both).cases[0]["flows"]]
    assert rates == pytest.approx([5e6, 20e6], rel=0.05)


class Granting(ReceiverLaw):
    """Tells the sender a rate."""

    def __init__(self):
        self.arrived = 0
        self.told = False

    def on_arrival(self, arrival):
        self.arrived += arrival.bytes

    def message(self, now):
        if self.told or not self.arrived:
            return None
        self.told = True
        return b"15"


class Granted(CongestionController):
    receiver = Granting

    def __init__(self):
        self.rate = 1e6

    def on_message(self, now, bytes):
        self.rate = float(bytes) * 1e6

    def on_ack(self, ack):
        pass

    def on_loss(self, loss):
        pass

    def allowance(self):
        return Allowance(rate=self.rate)


def test_a_receiving_half_tells_its_sender():
    assert goodput(farhaul.simulate(over(Granted))) == pytest.approx(15e6, rel=0.05)


class Raising(Fixed):
    def on_ack(self, ack):
        raise ZeroDivisionError("in a law")


class Wrong(Fixed):
    def allowance(self):
        return 7


class Negative(Fixed):
    def allowance(self):
        return Allowance(rate=-1.0)


class Unmade(Fixed):
    def __init__(self):
        raise OSError("not made")


@pytest.mark.parametrize(
    ("law", "kind", "words"),
    [
        (Raising, ZeroDivisionError, "in a law"),
        (Wrong, TypeError, "Allowance"),
        (Negative, ValueError, "-1"),
        (Unmade, OSError, "not made"),
    ],
)
def test_what_a_law_raises_ends_the_run_and_is_raised(law, kind, words):
    began = time.monotonic()
    with pytest.raises(kind, match=words):
        farhaul.simulate(over(law, duration="10000s"))
    assert time.monotonic() - began < 10


def test_a_law_that_asks_for_what_cannot_be_is_an_error():
    class Endless(Fixed):
        def allowance(self):
            return Allowance(window=50_000, rate=1e300)

    class Unpaced(Fixed):
        def allowance(self):
            return Allowance(window=50_000)

    path = Path(rate="20Mbit", rtt="40ms")
    with pytest.raises(ValueError, match="8 \\* window / srtt"):
        farhaul.simulate(Scenario(path, Flow(law=Unpaced, protocol="tcp"), duration="1s"))
    with pytest.raises(errors.InternalError, match="infinite rate"):
        farhaul.simulate(Scenario(path, Flow(law=Endless, protocol="tcp"), duration="1s"))


def test_a_law_without_its_methods_is_refused():
    class Half(CongestionController):
        def on_ack(self, ack):
            pass

    with pytest.raises(errors.UsageError, match="on_loss, allowance"):
        farhaul.simulate(over(Half))


def test_laws_have_places_again_when_their_calls_are_over():
    for _ in range(40):
        with pytest.raises(ZeroDivisionError):
            farhaul.simulate(over(Raising))
    many = [Flow(law=functools.partial(Fixed, 1e6 + i)) for i in range(17)]
    with pytest.raises(ValueError, match="at most 16"):
        farhaul.simulate(Scenario(Path(rate="50Mbit", rtt="20ms"), many, duration="1s"))
    assert goodput(farhaul.simulate(over(Fixed))) > 15e6


def test_calls_on_several_threads_have_laws_of_their_own():
    rates = {}

    def run(rate):
        rates[rate] = goodput(farhaul.simulate(over(functools.partial(Fixed, rate), duration="10s")))

    threads = [threading.Thread(target=run, args=(rate,)) for rate in (4e6, 8e6, 16e6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for rate, got in rates.items():
        assert got == pytest.approx(rate, rel=0.05)
    assert len(rates) == 3


def test_a_law_that_is_called_as_one_of_the_simulator_does_not_replace_it():
    def reno():
        return Fixed(2e6)

    flows = [Flow(name="mine", law=reno), Flow(name="theirs", law="reno", start="500ms")]
    both = farhaul.simulate(Scenario(Path(rate="20Mbit", rtt="20ms"), flows, duration="2s"))
    assert [flow["law"] for flow in both.cases[0].flows] == ["reno-2", "reno"]
    mine, theirs = (f["goodput_bits_per_second"]["mean"] for f in both.cases[0].flows)
    assert mine < 3e6 < theirs


def test_what_ends_an_iteration_ends_a_coroutine():
    class Ends(Fixed):
        def on_ack(self, ack):
            next(iter(()))

    over = Scenario(Path(rate="20Mbit", rtt="20ms"), Flow(law=Ends), duration="1s")
    with pytest.raises(RuntimeError, match="StopIteration"):
        asyncio.run(asyncio.wait_for(farhaul.aio.simulate(over), 20))


def test_a_time_that_is_none_is_refused():
    class Wrong(Fixed):
        def on_tick(self, now):
            pass

        def next_tick(self):
            return float("nan")

    with pytest.raises(ValueError, match=r"next_tick\(\) gave NaN"):
        farhaul.simulate(Scenario(Path(rate="20Mbit", rtt="20ms"), Flow(law=Wrong), duration="1s"))
