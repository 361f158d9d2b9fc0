"""Do the recipes for Slurm do what they say, as docs/recipes.md and docs/python.md print them, but for names?"""

import contextlib
import functools
import json
import os
import re
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

import farhaul
from slurm_cluster import Cluster, missing, until

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    why = missing()
    if why is not None:
        pytest.skip(why)
    cluster = Cluster(tmp_path_factory.mktemp("slurm"))
    yield cluster
    cluster.stop()


@contextlib.contextmanager
def within(seconds):
    """Raises where this thread is, if it takes longer."""

    def late(*_):
        raise TimeoutError(f"not in {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture
def cluster(started, tmp_path, monkeypatch):
    """The cluster, with nothing in its queue; jobs are submitted from a folder of the test."""
    for name, value in started.environment.items():
        monkeypatch.setenv(name, value)
    # Where workers of Dask write.
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with within(120):
        yield started
    started.ask("scancel", "--user=root")
    until(lambda: not started.jobs(), "the queue is empty")


class Far:
    """A server that keys are exchanged with, and the program that jobs find."""

    def __init__(self, folder: Path, server: farhaul.Server) -> None:
        self.folder, self.server = folder, server

    def named(self, recipe: str) -> str:
        """A recipe, with our names."""
        return recipe.replace("far.example.org", f"127.0.0.1:{self.server.port}")

    def bytes_of_part(self) -> int:
        """What has arrived of the largest file under way."""
        largest = 0
        for file in self.folder.rglob("*.farhaul-part"):
            # Those that are complete are renamed meanwhile.
            with contextlib.suppress(FileNotFoundError):
                largest = max(largest, file.stat().st_blocks * 512)
        return largest


@pytest.fixture
def far(cluster, tmp_path, monkeypatch):
    program = tmp_path / "bin/farhaul"
    program.parent.mkdir()
    program.symlink_to(os.environ["FARHAUL"])
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    folder = tmp_path / "far"
    folder.mkdir()
    # Slow enough to be killed midway.
    shares = {"scratch": f"{folder}:rw"}
    with farhaul.serve(shares, allow="any", listen="127.0.0.1:0", max_rate="16Mbit") as server:
        subprocess.run([program, "key", "gen"], check=True, capture_output=True)
        subprocess.run([program, "key", "trust", f"127.0.0.1:{server.port}", server.key], check=True)
        yield Far(folder, server)


def recipes(page, heading, language=""):
    """The blocks of a section."""
    section = re.search(rf"^##+ {heading}.*?(?=^##)", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE)
    return re.findall(rf"^```{language}\n(.*?)^```$", section[0], re.DOTALL | re.MULTILINE)


def typed(block):
    """The commands of a block."""
    return [line.removeprefix("$ ") for line in block.splitlines()]


def sh(*lines):
    return subprocess.run(["sh", "-c", "\n".join(lines)], capture_output=True, text=True)


def senders(environment):
    """The programs that run with all of this in their environment."""
    words = {f"{name}={value}".encode() for name, value in environment.items()}
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            runs = (process / "comm").read_text() == "farhaul\n"
            if runs and words <= set((process / "environ").read_bytes().split(b"\0")):
                found.append(int(process.name))
        except OSError:
            continue  # It has ended.
    return found


def contents(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir() if not file.name.startswith(".")}


def test_an_array_copies_a_tree_and_a_killed_task_goes_on(cluster, far, tmp_path):
    script, commands, *_ = recipes("recipes.md", "From many nodes at once")
    tree = tmp_path / "run7"
    tree.mkdir()
    # The largest is assigned first: to shard 1.
    (tree / "large").write_bytes(os.urandom(6_000_000))
    for number in range(40):
        (tree / f"f{number}").write_bytes(os.urandom(1_000 * number))
    Path("stage-out.sh").write_text(far.named(script).replace("/project/run7", str(tree)))
    prepare, submit, merge = typed(commands)
    submitted = sh("set -e", prepare, submit, "echo $jobid")
    assert submitted.returncode == 0, submitted.stderr
    array = submitted.stdout.strip()
    until(lambda: far.bytes_of_part() > 2_000_000, "a part of the large file is there")
    # As the kernel does where memory is short: nothing is written, neither by it nor to the report.
    for process in senders({"SLURM_ARRAY_JOB_ID": array, "SLURM_ARRAY_TASK_ID": "1", **cluster.own}):
        os.kill(process, signal.SIGKILL)

    merged = sh(f"jobid={array}", merge)
    assert merged.returncode == 5, merged
    said = Path("merge.txt").read_text()
    assert "1 of 8 shards are not complete: 1 " in said, said
    assert cluster.job(f"{array}_1")["ExitCode"] == "0:9"

    again = sh("set -e", submit.replace("sbatch", "sbatch --array=1"), merge)
    assert again.returncode == 0, again
    assert "complete: 8 shards, 41 files" in Path("merge.txt").read_text()
    report = json.loads(Path("reports/1.json").read_text())
    assert report["resumed_bytes"] >= 1_000_000
    assert contents(far.folder / "run7") == contents(tree)


def test_a_job_that_reaches_its_limit_goes_on_and_a_cancelled_one_does_not(cluster, far):
    (script,) = recipes("recipes.md", "In a batch job")
    Path("results").mkdir()
    Path("results/large").write_bytes(os.urandom(6_000_000))
    Path("job.sh").write_text(far.named(script))

    def begun():
        job = sh("sbatch --parsable job.sh").stdout.strip()
        until(lambda: far.bytes_of_part() > 2_000_000, "a part is there")
        return job

    job = begun()
    # What Slurm does two minutes before the limit.
    sh(f"scancel --batch --signal=USR1 {job}")
    until(lambda: cluster.job(job).get("JobState") == "COMPLETED", "the job has run again")
    assert cluster.job(job)["Restarts"] == "1"
    said = Path(f"slurm-{job}.out").read_text()
    assert "interrupted" in said and "already there" in said, said
    assert contents(far.folder / job) == contents(Path("results"))

    job = begun()
    sh(f"scancel {job}")
    until(lambda: not cluster.jobs(), "the job has ended")
    assert cluster.job(job)["JobState"] == "CANCELLED"
    assert "interrupted" in Path(f"slurm-{job}.out").read_text()


GRID = farhaul.Scenario(
    farhaul.Path(rate="{rate}", rtt="20ms"),
    farhaul.Flow(law="{law}"),
    name="grid",
    duration="1s",
    vary={"rate": ["5Mbit", "20Mbit"], "law": ["cubic", "reno"]},
)


def test_a_sweep_has_jobs_of_dask_and_loses_one(cluster):
    pytest.importorskip("dask_jobqueue")
    recipe = recipes("python.md", "Sweeps", "py")[0]
    lost = []

    def lose_one(event):
        if event["ended"] == 2:
            lost.append(cluster.jobs("--states=RUNNING")[0])
            cluster.ask("scancel", lost[0])

    # The package, whose sweep tells.
    names = {"farhaul": SimpleNamespace(sweep=functools.partial(farhaul.sweep, progress=lose_one)), "grid": GRID}
    exec(compile(recipe.replace("1..100", "1..8"), "python.md", "exec"), names)  # noqa: S102
    assert lost and cluster.job(lost[0])["JobState"] == "CANCELLED"
    lines = [json.loads(line) for line in Path("grid/grid/runs.jsonl").read_text().splitlines()]
    there = {(str(run["case"]), run["seed"]): run["trace_hash"] for run in lines}
    assert len(lines) == len(there) == 4 * 8
    here = farhaul.sweep(GRID, "here", seeds="1..8")
    assert there == {(str(run["case"]), run["seed"]): run["trace_hash"] for run in here.runs}
    until(lambda: not cluster.jobs(), "no job is left")
