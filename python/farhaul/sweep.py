"""``sweep()``: every case of a scenario with every seed, by any executor, into a folder.

- A cell is a case with a seed. Workers are given the scenario and return what came of a cell; only the
  caller writes, so that workers share nothing with it.
- Below the folder: ``series``, a Parquet file per cell; ``NAME/runs.jsonl``, what ``farhaul lab run``
  stores of each; ``study.toml`` and ``scenario.toml``, for ``farhaul lab report``.
- A cell counts once both are there. What was stopped midway is taken up by the same call.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib
import inspect
import io
import itertools
import json
import os
import re
import urllib.parse
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from . import _farhaul
from ._calls import Cancel, Progress
from ._executors import run_all
from .commands import Report
from .errors import _usage
from .simulation import _asked, _text, simulate

if TYPE_CHECKING:
    import pandas

#: How many Python laws a process has room for at a time.
_MOST_LAWS = 16

#: What a worker returns: what is stored of the cell as JSON, and its series as Parquet.
Ran = tuple[str, bytes]
Scenario = Mapping[str, Any] | str | os.PathLike[str]


class _Cell(NamedTuple):
    case: dict[str, str]
    seed: int
    #: Equal keys are equal cells of equal programs.
    key: str

    def __str__(self) -> str:
        return f"case {self.case}, seed {self.seed}"

    def place(self) -> Path:
        """Its series, below the folder of all."""
        values = (f"case.{name}={urllib.parse.quote(value, safe='')}" for name, value in self.case.items())
        return Path(*values, f"seed-{self.seed}-{self.key[:8]}.parquet")


class Sweep:
    """What came of a sweep."""

    def __init__(self, folder: Path, runs: list[Report]) -> None:
        #: Where it is.
        self.folder = folder
        #: What is stored of each cell, in the order of cases and seeds.
        self.runs = runs

    def to_pandas(self) -> pandas.DataFrame:
        """A row per cell and flow, with the values of the case; needs pandas."""
        import pandas

        rows = []
        for run in self.runs:
            for number, flow in enumerate(run["flows"]):
                rows.append({**run["case"], "seed": run["seed"], "flow": number, **flow})
        return pandas.DataFrame(rows)

    def dataset(self) -> Any:
        """The series of all cells as a ``pyarrow.dataset``, with a column ``case.NAME`` per variable."""
        pyarrow, dataset = _library("pyarrow"), _library("pyarrow.dataset")
        names = sorted({f"case.{name}" for run in self.runs for name in run["case"]})
        schema = pyarrow.schema([(name, pyarrow.string()) for name in names])
        files = [str(self.folder / "series" / _of(run).place()) for run in self.runs]
        return dataset.dataset(
            files,
            partition_base_dir=str(self.folder / "series"),
            partitioning=dataset.partitioning(schema, flavor="hive"),
        )


def _of(run: Mapping[str, Any]) -> _Cell:
    return _Cell(run["case"], run["seed"], str(run.get("key", "")))


def sweep(
    scenario: Scenario,
    out: str | os.PathLike[str],
    *,
    seeds: str | int | None = None,
    case: Mapping[str, str] | None = None,
    executor: Any = None,
    workers: int | None = None,
    progress: Progress | None = None,
    cancel: Cancel | None = None,
) -> Sweep:
    """Simulates each case of ``scenario`` with each seed once, and stores it below the folder ``out``.

    ``executor`` is a ``concurrent.futures.Executor`` or a ``dask.distributed.Client``; without one, threads
    of this process (``workers``: one per core) simulate. Cells that are stored, of the same scenario and
    program, are not run again. ``progress`` is called with an event of the type ``cell`` as each is stored.

    Needs pyarrow. A law that is a Python class must be importable where workers are other processes.
    """
    _library("pyarrow.parquet")
    cells, asked = _cells(scenario, seeds, case)
    portable = _portable(scenario, asked)
    with _Store(Path(out), asked, cells) as store:
        missing = [cell for cell in cells if cell.key not in store.done]
        told = itertools.count(len(cells) - len(missing) + 1)

        def keep(cell: _Cell, ran: Ran) -> bool:
            store.keep(cell, ran)
            if progress is not None:
                event = {"type": "cell", "ended": next(told), "cells": len(cells)}
                progress({**event, "case": cell.case, "seed": cell.seed})
            return False

        def arguments(cell: _Cell) -> tuple[Any, ...]:
            return (portable, store.toml, cell)

        threads = _threads(workers, len(asked["laws"]))
        run_all(_simulated, arguments, missing, keep, executor=executor, threads=threads, cancel=cancel)
        runs = [store.done[cell.key] for cell in cells]
    return Sweep(Path(out), runs)


def _library(name: str) -> Any:
    """A module of pyarrow, which the package does not depend on."""
    try:
        return importlib.import_module(name)
    except ImportError as e:
        raise _usage(f"a sweep needs pyarrow ({e})", "pip install pyarrow") from e


def _cells(
    scenario: Scenario, seeds: str | int | None, case: Mapping[str, str] | None
) -> tuple[list[_Cell], dict[str, Any]]:
    """The cells in order, and what the scenario is."""
    asked = _asked(scenario, seeds, case)
    found = json.loads(_farhaul.cells(asked))
    asked["name"] = found["name"]
    if not re.fullmatch("[A-Za-z0-9-]+", found["name"]):
        text = f"the scenario's name {found['name']!r} is to be that of a folder and of a study"
        raise _usage(text, "use letters, digits and '-'")
    # Of a build that is not known nothing that is stored is taken.
    build = found["build"] or uuid.uuid4().hex
    first, last = found["seeds"]
    laws = _text(scenario)[3]
    sources = {name: _source(law) for name, law in laws.items()}
    cells = []
    for plan in found["cases"]:
        # Python laws have other names in each process, and with them fingerprints.
        what = [asked["text"], sources] if laws else plan["fingerprint"]
        for seed in range(first, last + 1):
            key = json.dumps([what, found["name"], build, plan["case"], seed], sort_keys=True)
            cells.append(_Cell(plan["case"], seed, hashlib.sha256(key.encode()).hexdigest()[:32]))
    return cells, asked


def _source(law: Any) -> str:
    """The source of a law, by which a changed one is told from what was stored."""
    made = getattr(law, "func", law)
    try:
        return inspect.getsource(made) + repr(getattr(law, "args", ())) + repr(getattr(law, "keywords", {}))
    except (OSError, TypeError) as e:
        text = f"the source of the law {made!r} cannot be had, so what is stored of it cannot be told from another's"
        raise _usage(f"{text} ({e})", "define it in a file or a notebook's cell") from e


def _portable(scenario: Scenario, asked: dict[str, Any]) -> Scenario:
    """The same for a worker elsewhere, which has no files of this machine."""
    if isinstance(scenario, Mapping):
        return dict(scenario)
    return str(asked["text"]) + "\n"


def _simulated(scenario: Scenario, toml: str, cell: _Cell, cancel: Cancel | None = None) -> Ran:
    """What a worker does: all but storing it."""
    pyarrow = _library("pyarrow")
    outcomes: list[dict[str, Any]] = []

    def told(event: dict[str, Any]) -> None:
        outcomes.append(event["outcome"])

    result = simulate(scenario, seeds=cell.seed, case=cell.case, jobs=1, progress=told, cancel=cancel)
    run = json.dumps({**outcomes[0], "key": cell.key})
    about = {"farhaul.outcome": run, "farhaul.scenario": toml}
    sink = io.BytesIO()
    table = pyarrow.table(result.series).replace_schema_metadata(about)
    _library("pyarrow.parquet").write_table(table, sink)
    return run, sink.getvalue()


def _threads(workers: int | None, laws: int) -> int:
    """How many simulate in this process: the interpreter's lock is released meanwhile."""
    most = workers or len(os.sched_getaffinity(0))
    return max(1, min(most, _MOST_LAWS // laws)) if laws else most


class _Store:
    """The folder of a sweep, which one process writes at a time."""

    def __init__(self, folder: Path, asked: dict[str, Any], cells: list[_Cell]) -> None:
        self.folder = folder
        self.runs = folder / asked["name"]
        self.asked = asked
        text = asked["text"]
        self.toml: str = _farhaul.to_toml(text) if asked["is_json"] else text
        #: What is stored of each of ``cells`` that is, by its key.
        self.done: dict[str, Report] = {}
        self._wanted = {cell.key for cell in cells}
        self._open = contextlib.ExitStack()
        self._file: IO[bytes] | None = None

    def __enter__(self) -> _Store:
        with contextlib.ExitStack() as stack:
            self.runs.mkdir(parents=True, exist_ok=True)
            # The study is above its runs, whose lock is that of `lab run`.
            for folder in (self.folder, self.runs):
                lock = stack.enter_context(open(folder / "lock", "ab"))
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError as e:
                    text = f"another process writes to {folder}"
                    raise _usage(text, "wait for it, or choose another folder") from e
            self._describe()
            self._file = stack.enter_context(open(self.runs / "runs.jsonl", "ab"))
            self._mend()
            self._open = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def _describe(self) -> None:
        """The study, which ``lab report`` reads."""
        name = self.asked["name"]
        quoted = json.dumps(name)
        study = (
            f'name = {quoted}\ntitle = {quoted}\nsource = "a sweep"\nabout = "Each case with each seed."\n\n'
            f'[[experiment]]\nid = "cells"\ntitle = {quoted}\nabout = "Each case with each seed."\n'
            'scenario = "scenario.toml"\n'
        )
        described = self.folder / "study.toml"
        if described.exists() and not described.read_text().startswith(f"name = {quoted}\n"):
            raise _usage(f"{self.folder} holds a study of another name", "choose another folder")
        owner = self.runs / "study.json"
        mine = {"study": name, "quick": False}
        if owner.exists() and json.loads(owner.read_text() or "null") not in (mine, None):
            raise _usage(f"{self.runs} holds runs of something else", "choose another folder")
        _replace(owner, json.dumps(mine).encode())
        _replace(self.folder / "scenario.toml", self.toml.encode())
        _replace(self.folder / "study.toml", study.encode())

    def _mend(self) -> None:
        """Reads what is stored, and cuts off what a crash left at the end."""
        whole = 0
        with open(self.runs / "runs.jsonl", "rb") as lines:
            for line in lines:
                if not line.endswith(b"\n"):
                    break
                try:
                    run = Report(json.loads(line))
                except ValueError as e:
                    if b"\0" in line:
                        break
                    raise _usage(f"{self.runs / 'runs.jsonl'}: {e}", "mend it, or choose another folder") from e
                whole += len(line)
                if run.get("key") in self._wanted and (self.folder / "series" / _of(run).place()).exists():
                    self.done[run["key"]] = run
        assert self._file is not None
        self._file.truncate(whole)

    def keep(self, cell: _Cell, ran: Ran) -> None:
        """Stores a cell: its series, then what counts it as done."""
        run, series = ran
        place = self.folder / "series" / cell.place()
        place.parent.mkdir(parents=True, exist_ok=True)
        _replace(place, series)
        assert self._file is not None
        self._file.write(run.encode() + b"\n")
        self._file.flush()
        self.done[cell.key] = Report(json.loads(run))


def _replace(path: Path, content: bytes) -> None:
    """Writes a file whole, or not at all."""
    with open(path.with_name(path.name + ".new"), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(file.name, path)
