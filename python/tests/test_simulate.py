"""Is a simulation in Python that of the command, and its series those of its files?"""

import csv
import json
import os
import subprocess
import threading
import time
from pathlib import Path as File

import pandas
import pyarrow
import pytest

import farhaul
from farhaul import Flow, Path, Scenario, errors

SHORT = Scenario(
    Path(rate="50Mbit", rtt="20ms", loss="0.1%"),
    [Flow(name="a", law="cubic"), Flow(name="b", law="reno", start="500ms")],
    duration="2s",
    cross=[{"name": "noise", "rate": "5Mbit", "path": ["path"]}],
)
LONG = Scenario(Path(rate="10Gbit", rtt="100ms"), Flow(), duration="100000s", sample="1s", queue_sample="1s")


def test_the_series_are_arrow_with_every_column():
    result = farhaul.simulate(SHORT)
    table = pyarrow.table(result.series)
    assert table.column_names[:4] == ["case", "seed", "flow", "at"]
    assert set(table["flow"].to_pylist()) == {"a", "b"}
    frame = result.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert len(frame) == table.num_rows == 35
    assert frame[frame.flow == "a"].delivered.is_monotonic_increasing
    cross = pyarrow.table(result.cross)
    assert set(cross["cross"].to_pylist()) == {"noise"}
    goodput = {f["name"]: f["goodput_bits_per_second"]["mean"] for f in result.cases[0].flows}
    assert 0 < sum(goodput.values()) < 50e6
    last = frame[frame.flow == "a"].iloc[-1]
    assert last.delivered * 8 / last["at"] == pytest.approx(goodput["a"], rel=0.1)


def test_a_result_is_shown_and_drawn(tmp_path):
    result = farhaul.simulate(SHORT, seeds="1..2")
    assert "1 cases, 2 runs" in repr(result)
    shown = result._repr_html_()
    assert shown.count("<tr>") == 3 and "goodput" in shown
    drawn = result.plot(seed=2)
    assert drawn.startswith("<svg") and drawn._repr_svg_() == drawn
    for panel in ("goodput", "window", "rtt", "queue"):
        assert panel in drawn
    assert drawn != result.plot(seed=1) == result.plot()
    assert "rtt" not in result.plot(seed=3), "there is no such run"
    drawn.save(tmp_path / "a.svg")
    assert (tmp_path / "a.svg").read_text() == drawn


def test_polars_reads_them():
    polars = pytest.importorskip("polars")
    frame = farhaul.simulate(SHORT).to_polars()
    assert isinstance(frame, polars.DataFrame)
    assert frame.height == 35


def test_the_same_seed_gives_the_same_run_and_another_one_another():
    hashes = [farhaul.simulate(SHORT, seeds=seed).trace_hash for seed in (1, 1, 2)]
    assert hashes[0] == hashes[1] != hashes[2]


def test_cases_and_seeds_are_in_order_whatever_the_number_of_jobs():
    varied = Scenario(
        Path(rate="{rate}", rtt="10ms"), Flow(), duration="1s", vary={"rate": ["5Mbit", "10Mbit"]}
    )
    told = []
    result = farhaul.simulate(varied, seeds="1..3", jobs=2, progress=told.append)
    runs = pyarrow.table(result.series).select(["case", "seed"]).to_pylist()
    order = [(run["case"], run["seed"]) for run in runs]
    assert order == sorted(order, key=lambda run: (run[0] != "rate=5Mbit", run[1]))
    assert [event["ended"] for event in told] == [1, 2, 3, 4, 5, 6]
    assert len(result.cases) == 2
    with pytest.raises(ValueError, match="6 runs"):
        result.trace_hash  # noqa: B018
    only = farhaul.simulate(varied, case={"rate": "5Mbit"})
    assert len(only.cases) == 1


def test_a_scenario_is_its_toml(tmp_path):
    text = SHORT.to_toml()
    file = tmp_path / "short.toml"
    file.write_text(text)
    hashes = {farhaul.simulate(s).trace_hash for s in (SHORT, text, file, str(file), dict(SHORT))}
    assert len(hashes) == 1


@pytest.mark.skipif("FARHAUL" not in os.environ, reason="FARHAUL names no farhaul to compare with")
def test_it_is_the_run_of_the_command(tmp_path):
    file = tmp_path / "short.toml"
    file.write_text(SHORT.to_toml())
    command = [os.environ["FARHAUL"], "sim", "run", str(file)]
    ran = subprocess.run([*command, "--json"], capture_output=True, check=True)
    report = json.loads(ran.stdout)
    result = farhaul.simulate(file)
    assert result.report == report
    subprocess.run([*command, "--out", str(tmp_path / "out")], capture_output=True, check=True)
    frame = result.to_pandas()
    for series, name, table in [
        (frame[frame.flow == "a"], "a.csv", "flow"),
        (pyarrow.table(result.cross).to_pandas(), "cross-noise.csv", "cross"),
    ]:
        with File(tmp_path / "out" / "seed-1" / name).open() as written:
            rows = list(csv.DictReader(written))
        assert set(rows[0]) == set(series.columns) - {"case", "seed", table}
        for column in rows[0]:
            shown = ["" if pandas.isna(v) else v for v in series[column]]
            theirs = [row[column] for row in rows]
            same = [str(a) == b or (b and a != "" and float(a) == float(b)) for a, b in zip(shown, theirs)]
            assert all(same), column


@pytest.mark.parametrize(
    ("scenario", "words"),
    [
        (Scenario(Path(rate="10"), Flow(), duration="1s"), "unit"),
        (Scenario(Path(rate="1Gbit"), Flow(law="cubik"), duration="1s"), "did you mean 'cubic'"),
        (Scenario(Path(rate="1Gbit", los="1%"), Flow(), duration="1s"), "did you mean 'loss'"),
        (Scenario(Path(rate="1Gbit"), Flow()), "duration"),
        (Scenario(), "duration"),
        ("name = ", "scenario:1:"),
    ],
)
def test_what_is_wrong_is_named(scenario, words):
    with pytest.raises(errors.UsageError) as raised:
        farhaul.simulate(scenario)
    assert words in raised.value.text, raised.value.text


def test_expectations_that_are_not_met_are_raised_if_asked():
    expecting = Scenario(
        Path(rate="50Mbit", rtt="20ms"),
        Flow(),
        duration="1s",
        expect=[{"metric": "goodput", "min": "1Gbit"}],
    )
    assert farhaul.simulate(expecting).verdicts[0].ours < 50e6
    with pytest.raises(errors.ThresholdError) as raised:
        farhaul.simulate(expecting, check=True)
    assert raised.value.report["scenarios"][0]["verdicts"]


def test_a_long_run_is_cancelled_soon():
    cancel = farhaul.Cancel()
    timer = threading.Timer(0.3, cancel.cancel)
    timer.start()
    began = time.monotonic()
    with pytest.raises(errors.Interrupted) as raised:
        farhaul.simulate(LONG, cancel=cancel)
    assert time.monotonic() - began < 5
    assert raised.value.retryable and raised.value.code == 130
    with pytest.raises(errors.Interrupted):
        farhaul.simulate(SHORT, cancel=cancel)


def test_what_progress_raises_ends_the_call():
    def refuse(event):
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        farhaul.simulate(SHORT, seeds="1..1000", progress=refuse)


def test_other_threads_run_meanwhile():
    """The lock is released: a thread counts while a simulation runs."""
    counted = 0
    over = threading.Event()

    def count():
        nonlocal counted
        while not over.wait(0.001):
            counted += 1

    thread = threading.Thread(target=count)
    thread.start()
    farhaul.simulate(Scenario(Path(rate="1Gbit", rtt="10ms"), Flow(), duration="3s"))
    over.set()
    thread.join()
    assert counted >= 3
