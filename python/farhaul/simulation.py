"""``simulate()``: what ``farhaul sim run`` does, with every series as Arrow."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from . import _calls, _farhaul
from ._calls import Cancel, Progress
from ._shown import Svg, table
from .commands import Report
from .laws import Law, halves
from .scenario import text_of

if TYPE_CHECKING:
    import pandas
    import polars

Laws = dict[str, Law]


class Series:
    """A table over time, as Arrow: ``pyarrow.table(series)``, ``polars.DataFrame(series)``.

    Columns: ``case``, ``seed`` and ``flow`` (or ``cross``), then those of the CSV files of ``sim run --out``.
    """

    def __init__(self, table: _farhaul.Table) -> None:
        self._table = table

    def __len__(self) -> int:
        return len(self._table)

    def __arrow_c_schema__(self) -> object:
        return self._table.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)

    def to_pandas(self) -> pandas.DataFrame:
        """Needs pandas and pyarrow."""
        import pyarrow  # type: ignore[import-untyped,unused-ignore]

        frame: pandas.DataFrame = pyarrow.table(self).to_pandas()
        return frame

    def to_polars(self) -> polars.DataFrame:
        """Needs polars."""
        import polars

        return polars.DataFrame(self)


class Simulation:
    """What came of a scenario's runs."""

    def __init__(self, report: Report, flows: Series, cross: Series) -> None:
        #: What ``sim run --json`` prints.
        self.report = report
        #: Every flow over time.
        self.series = flows
        #: All cross traffic over time.
        self.cross = cross

    @property
    def cases(self) -> list[Report]:
        """The results of each case over its seeds."""
        return [Report(case) for case in self.report["scenarios"][0]["cases"]]

    @property
    def verdicts(self) -> list[Report]:
        """One per expectation and case."""
        return [Report(verdict) for verdict in self.report["scenarios"][0]["verdicts"]]

    @property
    def trace_hash(self) -> str:
        """The hash of the events of the only run; of several runs, each case has its own by seed."""
        hashes = [h for case in self.cases for h in case["trace_hash"].values()]
        if len(hashes) != 1:
            raise ValueError(f"there are {len(hashes)} runs: see trace_hash of each of cases")
        return str(hashes[0])

    def plot(self, case: str | None = None, seed: int | None = None) -> Svg:
        """The flows of one run over time, in the panels of ``sim --plot``; of the first run if none is named.

        ``case`` is written as in the column of the series, as ``"rate=10Mbit"``.
        """
        return Svg(_farhaul.draw(str(self._name), self.series._table.tracks(case, seed)))

    @property
    def _name(self) -> object:
        return self.report["scenarios"][0]["name"]

    def __repr__(self) -> str:
        runs = sum(len(case["trace_hash"]) for case in self.cases)
        return f"<Simulation '{self._name}': {len(self.cases)} cases, {runs} runs, {len(self.series)} samples>"

    def _repr_html_(self) -> str:
        rows = (
            (", ".join(f"{k}={v}" for k, v in case["case"].items()), flow["name"], *_median(flow))
            for case in self.cases
            for flow in case["flows"]
        )
        return table(("case", "flow", "goodput, Mbit/s"), rows)

    def to_pandas(self) -> pandas.DataFrame:
        """The series of the flows; needs pandas and pyarrow."""
        return self.series.to_pandas()

    def to_polars(self) -> polars.DataFrame:
        """The series of the flows; needs polars."""
        return self.series.to_polars()


def _median(flow: Mapping[str, Any]) -> tuple[str]:
    goodput = flow.get("goodput_bits_per_second")
    return ("" if goodput is None else f"{goodput['median'] / 1e6:.4g}",)


def _text(scenario: Mapping[str, Any] | str | os.PathLike[str]) -> tuple[str, str, bool, Laws]:
    """The name for messages, the text, whether that is JSON, and the laws in it."""
    if isinstance(scenario, Mapping):
        return (str(scenario.get("name", "scenario")), *_with_laws(scenario))
    if isinstance(scenario, str) and ("\n" in scenario or not scenario.endswith(".toml")):
        return "scenario", scenario, False, {}
    with open(scenario, encoding="utf-8") as file:
        return os.fspath(scenario), file.read(), False, {}


def _with_laws(scenario: Mapping[str, Any]) -> tuple[str, bool, Laws]:
    text, laws = text_of(scenario)
    return text, True, laws


def _asked(
    scenario: Mapping[str, Any] | str | os.PathLike[str],
    seeds: str | int | None,
    case: Mapping[str, str] | None,
    jobs: int | None = None,
    check: bool = False,
) -> dict[str, Any]:
    """What the native module is given."""
    file, text, is_json, laws = _text(scenario)
    return {
        "file": file,
        "text": text,
        "is_json": is_json,
        "seeds": None if seeds is None else str(seeds),
        "case": {k: str(v) for k, v in (case or {}).items()},
        "jobs": jobs,
        "check": check,
        "laws": [(name, *halves(law)) for name, law in laws.items()],
    }


def simulate(
    scenario: Mapping[str, Any] | str | os.PathLike[str],
    *,
    seeds: str | int | None = None,
    case: Mapping[str, str] | None = None,
    jobs: int | None = None,
    check: bool = False,
    progress: Progress | None = None,
    cancel: Cancel | None = None,
) -> Simulation:
    """Simulates every case of a scenario with every seed, on all cores.

    ``scenario`` is a :class:`~farhaul.Scenario`, a scenario file (a path, or a text that ends in
    ``.toml``), or the text of one. ``seeds`` (as ``"1..32"`` or 7), ``case``, ``jobs`` and ``check`` are
    those of ``farhaul sim run``. ``progress`` is called with an event for each run that has ended.

    What a law written in Python raises ends the simulation, and is raised.
    """
    asked = _asked(scenario, seeds, case, jobs, check)
    report, tables = _calls.run(lambda: _farhaul.simulate(asked), progress, cancel)
    assert tables is not None, "a simulation has series"
    return Simulation(Report(json.loads(report)), *map(Series, tables))
