"""``copy_sharded()``: one tree from several nodes, each of which sends a shard of it."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from ._calls import Cancel, Progress
from ._executors import run_all
from .commands import Place, Report, _command, _run, copy
from .errors import Error, Interrupted, _usage

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._flags import CpFlags

#: Shards that ``cp`` knows.
_MOST = 10_000
#: What a shard is sent again for.
_MAY_PASS = ("connection_lost", "busy", "locked", "net_setup")
#: Before it is, s.
_LONGEST_PAUSE = 30.0


def copy_sharded(
    source: Place | Sequence[Place],
    destination: Place,
    *,
    shards: int,
    executor: Any = None,
    retries: int = 3,
    progress: Progress | None = None,
    cancel: Cancel | None = None,
    **flags: Unpack[CpFlags],
) -> Report:
    """Copies the shards of a tree, as ``farhaul cp --shard I/N`` on N nodes does; what ``cp --merge`` says of them.

    ``executor`` is a ``dask.distributed.Client``, or a ``concurrent.futures.Executor``, whose workers see the
    same sources by the same paths; without one, threads of this process send. A shard that fails since the
    connection was lost or the server was busy is sent again after a pause, ``retries`` times; it goes on where it stopped. ``progress`` is called with an event of
    the type ``shard`` as each ends. Raises an exception of :mod:`farhaul.errors` unless the whole tree is there.
    """
    if not 1 <= shards <= _MOST:
        raise _usage(f"shards: {shards} is not from 1 to {_MOST}", "give the number of nodes")
    sources = [source] if isinstance(source, (str, os.PathLike)) else list(source)
    places = ([os.fspath(place) for place in sources], os.fspath(destination))
    reports: dict[int, dict[str, Any]] = {}
    tries: Counter[int] = Counter()

    def keep(index: int, report: dict[str, Any]) -> bool:
        reports[index] = report
        tries[index] += 1
        if progress is not None:
            progress({"type": "shard", "index": index, "count": shards, "ok": report["ok"]})
        return report["exit"]["name"] in _MAY_PASS and tries[index] <= retries

    def arguments(index: int) -> tuple[Any, ...]:
        return (*places, f"{index}/{shards}", flags, tries[index])

    run_all(
        _sent, arguments, range(1, shards + 1), keep, executor=executor, threads=shards, cancel=cancel
    )
    return _merged(reports)


def _sent(
    sources: list[Any],
    destination: Any,
    shard: str,
    flags: dict[str, Any],
    tries: int,
    cancel: Cancel | None = None,
) -> dict[str, Any]:
    """What a worker does: the report, also of a shard that failed. What no shard could begin with is raised."""
    until = time.monotonic() + (min(2.0**tries, _LONGEST_PAUSE) if tries else 0.0)
    while time.monotonic() < until and not (cancel and cancel.cancelled):
        time.sleep(0.1)
    try:
        return dict(copy(sources, destination, cancel=cancel, shard=shard, **flags))
    except Interrupted:
        raise
    except Error as e:
        shard_of = e.report.get("shard")
        if shard_of is None or not (shard_of["listing"] or e.name in _MAY_PASS or e.name == "partial"):
            raise
        return e.report


def _merged(reports: dict[int, dict[str, Any]]) -> Report:
    with TemporaryDirectory(prefix="farhaul-") as folder:
        files = []
        for index, report in reports.items():
            file = Path(folder, f"{index}.json")
            file.write_text(json.dumps(report))
            files.append(str(file))
        return _run(_command("cp", {}, files, merge=True, json=True), None, None)
