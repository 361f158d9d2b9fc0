"""``copy_sharded()``: one tree from several nodes, each of which sends a shard of it."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ._calls import Cancel, Progress
from ._executors import each, executor_of
from .commands import Place, Report, _run, copy
from .errors import Error


def copy_sharded(
    source: Place | Sequence[Place],
    destination: Place,
    *,
    shards: int,
    executor: Any = None,
    retries: int = 3,
    progress: Progress | None = None,
    **flags: Any,
) -> Report:
    """Copies the shards of a tree, as ``farhaul cp --shard I/N`` on N nodes does; what ``cp --merge`` says of them.

    ``executor`` is a ``dask.distributed.Client``, or a ``concurrent.futures.Executor``, whose workers see the
    same sources by the same paths; without one, threads of this process send. A shard that fails for a reason that
    may pass is sent again, ``retries`` times; it goes on where it stopped. ``progress`` is called with an event of
    the type ``shard`` as each ends. Raises an exception of :mod:`farhaul.errors` unless the whole tree is there.
    """
    sources = [source] if isinstance(source, (str, os.PathLike)) else list(source)
    places = ([os.fspath(place) for place in sources], os.fspath(destination))
    jobs = [_Shard(number, shards) for number in range(1, shards + 1)]
    reports: dict[_Shard, dict[str, Any]] = {}
    tries: Counter[_Shard] = Counter()

    def keep(shard: _Shard, report: dict[str, Any]) -> bool:
        reports[shard] = report
        tries[shard] += 1
        if progress is not None:
            progress({"type": "shard", "index": shard.index, "count": shards, "ok": report["ok"]})
        return not report["ok"] and report["exit"]["retryable"] and tries[shard] <= retries

    if executor is not None:
        submit = executor_of(executor).submit
        each(lambda shard: submit(_sent, *places, str(shard), flags), jobs, keep)
    else:
        _send_here(places, jobs, flags, keep)
    return _merged(reports)


class _Shard:
    def __init__(self, index: int, count: int) -> None:
        self.index, self.count = index, count

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


def _sent(
    sources: list[Any], destination: Any, shard: str, flags: dict[str, Any], cancel: Cancel | None = None
) -> dict[str, Any]:
    """What a worker does: the report, also of a shard that failed. What no shard could begin with is raised."""
    try:
        return dict(copy(sources, destination, cancel=cancel, shard=shard, **flags))
    except Error as e:
        shard_of = e.report.get("shard")
        if shard_of is None or not (shard_of["listing"] or e.retryable or e.name == "partial"):
            raise
        return e.report


def _send_here(places: tuple[list[Any], Any], jobs: list[_Shard], flags: dict[str, Any], keep: Any) -> None:
    cancel = Cancel()
    with ThreadPoolExecutor(max(len(jobs), 1), thread_name_prefix="farhaul-shard") as pool:
        try:
            each(lambda shard: pool.submit(_sent, *places, str(shard), flags, cancel), jobs, keep)
        except BaseException:
            cancel.cancel()
            raise


def _merged(reports: dict[_Shard, dict[str, Any]]) -> Report:
    with TemporaryDirectory(prefix="farhaul-") as folder:
        files = []
        for shard, report in reports.items():
            file = Path(folder, f"{shard.index}.json")
            file.write_text(json.dumps(report))
            files.append(str(file))
        return _run(["cp", "--merge", "--json", "--", *files], None, None)
