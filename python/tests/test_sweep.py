"""Is a sweep each cell once, whatever its executor does, and what the commands make of the same cells?"""

import asyncio
import json
import os
import signal
import subprocess
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import pyarrow.parquet
import pytest

import farhaul
from farhaul import Flow, Path, Scenario, errors

GRID = Scenario(
    Path(rate="{rate}", rtt="{rtt}"),
    Flow(law="{law}"),
    name="grid",
    duration="500ms",
    seeds="1..2",
    vary={"rate": ["5Mbit", "10Mbit"], "rtt": ["10ms", "20 ms"], "law": ["cubic", "reno"]},
)
CELLS = 2 * 2 * 2 * 2


def test_each_cell_is_that_of_the_command(tmp_path):
    told = []
    swept = farhaul.sweep(GRID, tmp_path / "out", progress=told.append)
    assert [event["ended"] for event in told] == list(range(1, CELLS + 1))
    file = tmp_path / "grid.toml"
    file.write_text(GRID.to_toml())
    program = os.environ["FARHAUL"]
    ran = subprocess.run([program, "sim", "run", file, "--json"], capture_output=True, check=True)
    of_command = {}
    for case in json.loads(ran.stdout)["scenarios"][0]["cases"]:
        for seed, trace in case["trace_hash"].items():
            of_command[json.dumps(case["case"], sort_keys=True), int(seed)] = trace
    ours = {(json.dumps(r.case, sort_keys=True), r.seed): r.trace_hash for r in swept.runs}
    assert ours == of_command
    frame = swept.to_pandas()
    assert len(frame) == CELLS and set(frame.law) == {"cubic", "reno"}
    assert (frame.goodput_bits_per_second > 1e6).all()


def test_the_series_are_a_data_set_with_all_that_is_known_of_each(tmp_path):
    swept = farhaul.sweep(GRID, tmp_path / "out", case={"law": "reno"})
    table = swept.dataset().to_table()
    assert set(table["case.rtt"].to_pylist()) == {"10ms", "20 ms"}
    assert {"at", "seed", "flow", "goodput_bits_per_second"} <= set(table.column_names)
    file = next((tmp_path / "out/series").rglob("seed-2-*.parquet"))
    about = pyarrow.parquet.read_schema(file).metadata
    outcome = json.loads(about[b"farhaul.outcome"])
    assert outcome["seed"] == 2 and outcome["version"] == farhaul.__version__
    assert outcome["machine"]["cores"] >= 1
    again = farhaul.simulate(about[b"farhaul.scenario"].decode(), case=outcome["case"], seeds=2)
    assert again.trace_hash == outcome["trace_hash"]


def test_lab_report_reads_it(tmp_path):
    out = tmp_path / "out"
    farhaul.sweep(GRID, out)

    def lab(action, *more):
        words = [os.environ["FARHAUL"], "lab", action, out / "study.toml", "--out", out, *more]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout

    assert "runs: 16 in all" in lab("report")
    before = (out / "grid/runs.jsonl").read_text()
    ran = json.loads(lab("run", "--any-build", "--json"))
    assert (out / "grid/runs.jsonl").read_text() == before, "nothing is missing"
    assert ran["made"] == 0


def count(monkeypatch):
    """The cells that are simulated from here on."""
    made = []
    real = farhaul.sweep.__globals__["_simulated"]

    def counted(scenario, toml, cell, cancel=None):
        made.append((tuple(cell.case.items()), cell.seed))
        return real(scenario, toml, cell, cancel)

    monkeypatch.setitem(farhaul.sweep.__globals__, "_simulated", counted)
    return made


def test_what_is_stored_is_not_run_again_and_what_is_torn_is(tmp_path, monkeypatch):
    out = tmp_path / "out"
    first = farhaul.sweep(GRID, out, seeds=1)
    made = count(monkeypatch)
    farhaul.sweep(GRID, out)
    assert len(made) == CELLS // 2 and {seed for _, seed in made} == {2}
    made.clear()
    farhaul.sweep({**GRID, "duration": "600ms"}, out, seeds=1, case={"law": "reno"})
    assert len(made) == 4, "another scenario"
    made.clear()
    lines = (out / "grid/runs.jsonl").read_bytes()
    (out / "grid/runs.jsonl").write_bytes(lines + b'{"torn": ')
    next(file for file in (out / "series").rglob("seed-1-*.parquet") if "cubic" in str(file)).unlink()
    swept = farhaul.sweep(GRID, out, seeds=1)
    assert len(made) == 1, made
    assert [r.trace_hash for r in swept.runs] == [r.trace_hash for r in first.runs]


def pool():
    return ProcessPoolExecutor(2, mp_context=get_context("spawn"))


class Steps(farhaul.CongestionController):
    """A law that another process can import."""

    def on_ack(self, ack):
        pass

    def on_loss(self, loss):
        pass

    def allowance(self):
        return farhaul.Allowance(window=20_000, rate=4e6)


def test_processes_make_the_same_and_a_lost_one_costs_what_it_had(tmp_path):
    here = farhaul.sweep(GRID, tmp_path / "here")

    def kill(event):
        if event["ended"] == 3:
            for pid in list(workers._processes):
                os.kill(pid, signal.SIGKILL)

    with pool() as workers, pytest.raises(farhaul.ExecutorError, match="call it again") as lost:
        farhaul.sweep(GRID, tmp_path / "there", executor=workers, progress=kill)
    assert lost.value.retryable
    stored = (tmp_path / "there/grid/runs.jsonl").read_text().count("\n")
    assert 3 <= stored < CELLS
    with pool() as workers:
        there = farhaul.sweep(GRID, tmp_path / "there", executor=workers)
    assert [r.trace_hash for r in there.runs] == [r.trace_hash for r in here.runs]
    lines = (tmp_path / "there/grid/runs.jsonl").read_text().splitlines()
    keys = [json.loads(line)["key"] for line in lines]
    assert len(keys) == len(set(keys)) == CELLS


def test_a_law_in_python_is_one_of_its_source(tmp_path, monkeypatch):
    scenario = Scenario(Path(rate="5Mbit", rtt="10ms"), Flow(law=Steps), name="own", duration="200ms")
    out = tmp_path / "out"
    with pool() as workers:
        there = farhaul.sweep(scenario, out, executor=workers)
    made = count(monkeypatch)
    assert farhaul.sweep(scenario, out).runs == there.runs and not made

    class Other(Steps):
        pass

    farhaul.sweep({**scenario, "flow": [{**scenario["flow"][0], "law": Other}]}, out)
    assert len(made) == 1
    with pool() as workers, pytest.raises(errors.UsageError, match="sent to another process"):
        fresh = {**scenario, "flow": [{**scenario["flow"][0], "law": Other}]}
        farhaul.sweep(fresh, tmp_path / "local", executor=workers)


def test_dask_simulates_and_a_lost_worker_is_made_good(tmp_path):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, local_directory=tmp_path / "dask"
    ) as cluster:
        with distributed.Client(cluster) as client:

            def kill(event):
                if event["ended"] == 2:
                    os.kill(next(iter(cluster.workers.values())).pid, signal.SIGKILL)

            swept = farhaul.sweep(GRID, tmp_path / "out", executor=client, progress=kill)
    assert [r.trace_hash for r in swept.runs] == [r.trace_hash for r in farhaul.sweep(GRID, tmp_path / "b").runs]
    assert (tmp_path / "out/grid/runs.jsonl").read_text().count("\n") == CELLS


class Dead(ThreadPoolExecutor):
    def submit(self, *_, **__):
        future = Future()
        future.cancel()
        return future


def test_what_is_wrong_is_said(tmp_path):
    out = tmp_path / "out"
    with pytest.raises(errors.UsageError, match="is no executor"):
        farhaul.sweep(GRID, out, executor="slurm")
    with pytest.raises(farhaul.ExecutorError):
        farhaul.sweep(GRID, out, executor=Dead())
    ended = ThreadPoolExecutor()
    ended.shutdown()
    with pytest.raises(farhaul.ExecutorError, match="after shutdown"):
        farhaul.sweep(GRID, out, executor=ended)
    with pytest.raises(errors.UsageError, match="law"):
        farhaul.sweep(Scenario(Path(rate="1Mbit", rtt="1ms"), Flow(law="nothing"), duration="1s"), out)
    with pytest.raises(errors.UsageError, match="seeds"):
        farhaul.sweep(GRID, out, seeds="2..1")
    for name in ("../x", "/etc/x", "a b"):
        with pytest.raises(errors.UsageError, match="letters, digits"):
            farhaul.sweep({**GRID, "name": name}, out)
    with pytest.raises(errors.UsageError, match="another name"):
        farhaul.sweep({**GRID, "name": "other"}, out)
    (out / "grid/study.json").write_text('{"study": "other", "quick": false}')
    with pytest.raises(errors.UsageError, match="something else"):
        farhaul.sweep(GRID, out)


def test_an_interrupt_ends_it_and_leaves_what_is_done(tmp_path):
    def stop(event):
        if event["ended"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        farhaul.sweep(GRID, tmp_path / "out", progress=stop)
    stored = (tmp_path / "out/grid/runs.jsonl").read_text().count("\n")
    assert stored == 2
    assert len(farhaul.sweep(GRID, tmp_path / "out").runs) == CELLS


def test_a_cancelled_sweep_goes_on_when_it_is_called_again(tmp_path):
    cancel = farhaul.Cancel()

    def stop(event):
        cancel.cancel()

    for executor in (None, ThreadPoolExecutor(1), pool()):
        cancel = farhaul.Cancel()
        with pytest.raises(errors.Interrupted):
            farhaul.sweep(GRID, tmp_path / "out", progress=stop, cancel=cancel, executor=executor)
        if executor is not None:
            executor.shutdown()
    stored = (tmp_path / "out/grid/runs.jsonl").read_text().count("\n")
    assert 3 <= stored < CELLS
    swept = asyncio.run(farhaul.aio.sweep(GRID, tmp_path / "out"))
    assert len(swept.runs) == CELLS
