"""How is work given to an executor? One job per call, a bounded number under way, each result kept by the caller as it comes.

An executor is a ``concurrent.futures.Executor`` or a ``dask.distributed.Client``. However it fails, that is one
exception; what a job itself raises is passed on.
"""

from __future__ import annotations

import concurrent.futures as futures
import pickle
import queue
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from ._calls import Cancel
from .errors import Error, _made, _usage

J = TypeVar("J")
R = TypeVar("R")

#: Calls that an executor has at a time.
UNDER_WAY = 128


class ExecutorError(Error):
    """An executor ended, or lost its workers. What it had done is kept."""

    name = "executor"
    retryable = True


def executor_of(given: Any) -> Any:
    """What has ``submit``."""
    if isinstance(given, futures.Executor):
        return given
    if not hasattr(given, "get_executor"):
        raise _usage(
            f"executor: {type(given).__name__} is no executor",
            "give a concurrent.futures.Executor or a dask.distributed.Client",
        )
    # Equal calls are not taken for one, and those of a worker that is lost run again.
    return given.get_executor(pure=False)


def run_all(
    work: Callable[..., R],
    arguments: Callable[[J], tuple[Any, ...]],
    jobs: Iterable[J],
    keep: Callable[[J, R], bool],
    *,
    executor: Any,
    threads: int,
    cancel: Cancel | None,
) -> None:
    """Has ``work(*arguments(job))`` done for every job, without an executor by threads of this process.

    One of which ``keep`` says so is done again. In this process ``work`` is given a ``cancel``, too.
    """
    inner = Cancel()
    if cancel is not None:
        cancel._add(inner)
    try:
        if executor is None:
            with futures.ThreadPoolExecutor(max(threads, 1), thread_name_prefix="farhaul-worker") as pool:
                _each(lambda job: pool.submit(work, *arguments(job), inner), jobs, keep, inner, 2 * threads)
        elif isinstance(executor, futures.ThreadPoolExecutor):
            _each(lambda job: executor.submit(work, *arguments(job), inner), jobs, keep, inner)
        else:
            submit = executor_of(executor).submit
            _each(lambda job: submit(work, *arguments(job)), jobs, keep, inner)
    except BaseException:
        inner.cancel()
        raise


class _Wakes:
    """Ends the wait for the next result."""

    def __init__(self, ended: queue.SimpleQueue[Any]) -> None:
        self._ended = ended

    def cancel(self) -> None:
        self._ended.put(None)


def _each(
    submit: Callable[[J], futures.Future[R]],
    jobs: Iterable[J],
    keep: Callable[[J, R], bool],
    cancel: Cancel,
    most: int = UNDER_WAY,
) -> None:
    left = deque(jobs)
    waiting: dict[futures.Future[R], J] = {}
    # futures.wait() does not see what a pool cancels as it is shut down.
    ended: queue.SimpleQueue[futures.Future[R] | None] = queue.SimpleQueue()
    wakes = _Wakes(ended)
    cancel._add(wakes)
    try:
        while True:
            while left and len(waiting) < most:
                future = _submitted(submit, left[0])
                waiting[future] = left.popleft()
                future.add_done_callback(ended.put)
            if not waiting:
                return
            if (next_one := ended.get()) is None:
                raise _made(130, "cancelled: what is done is kept", "call it again", "{}")
            job = waiting.pop(next_one)
            if keep(job, _result(next_one, job)):
                left.append(job)
    finally:
        for future in waiting:
            future.cancel()


def _submitted(submit: Callable[[J], futures.Future[R]], job: J) -> futures.Future[R]:
    try:
        return submit(job)
    except (OSError, RuntimeError) as e:
        raise _lost(job, e) from e


def _result(future: futures.Future[R], job: object) -> R:
    try:
        return future.result()
    except (Error, KeyboardInterrupt):
        raise
    except (futures.BrokenExecutor, futures.CancelledError) as e:
        raise _lost(job, e) from e
    except (pickle.PicklingError, AttributeError, TypeError) as e:
        # CPython has three kinds for what cannot be pickled, and several texts.
        if not any(word in str(e) for word in ("pickle", "local object")):
            raise
        text = f"this cannot be sent to another process ({e})"
        raise _usage(text, "define classes and functions in a module, or omit executor") from e
    except Exception as e:
        # Dask has kinds of its own, such as KilledWorker.
        if type(e).__module__.partition(".")[0] not in ("dask", "distributed"):
            raise
        raise _lost(job, e) from e


def _lost(job: object, why: BaseException) -> ExecutorError:
    fix = "what is done is kept: call it again, with a new executor"
    return ExecutorError(f"the executor failed in {job}: {type(why).__name__}: {why}: {fix}", fix)
