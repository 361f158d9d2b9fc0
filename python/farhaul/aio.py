"""The calls for asyncio: each waits on a thread of its own, and cancelling its task ends it.

``progress`` is called in the event loop. A task that was cancelled is done when its call has ended, so
that nothing is left running.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from . import commands, simulation
from ._calls import Cancel, Event, Progress
from .commands import Bench, Report
from .sharded import copy_sharded as _copy_sharded
from .simulation import Simulation
from .sweep import Sweep
from .sweep import sweep as _sweep

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._flags import BenchFlags, CpFlags, DoctorFlags, LsFlags

T = TypeVar("T")


async def _on_thread(call: Callable[..., T], progress: Progress | None, *args: Any, **given: Any) -> T:
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    cancel = given.pop("cancel", None) or Cancel()

    def settle(result: T | None, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if isinstance(error, StopIteration):
            # Which a future refuses.
            stopped = RuntimeError(f"a law raised {error!r}")
            stopped.__cause__ = error
            done.set_exception(stopped)
        elif error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]

    def in_loop(function: Callable[..., object], *words: object) -> None:
        try:
            loop.call_soon_threadsafe(function, *words)
        except RuntimeError:
            # The loop was closed: nobody waits for it.
            cancel.cancel()

    def told(event: Event) -> None:
        if progress is not None:
            in_loop(progress, event)

    def work() -> None:
        try:
            result = call(*args, cancel=cancel, **({} if progress is None else {"progress": told}), **given)
        except BaseException as error:
            in_loop(settle, None, error)
        else:
            in_loop(settle, result, None)

    thread = threading.Thread(target=work, name="farhaul-aio", daemon=True)
    thread.start()
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        cancel.cancel()
        await asyncio.wait([done])
        # What it raised, or gave after all, is nobody's any more.
        done.exception()
        raise
    finally:
        if done.done():
            # Settling it was the last that it did.
            thread.join()


async def copy(
    *places: Any, progress: Progress | None = None, cancel: Cancel | None = None, **flags: Unpack[CpFlags]
) -> Report:
    """:func:`farhaul.copy`."""
    return await _on_thread(commands.copy, progress, *places, cancel=cancel, **flags)


async def ls(*places: Any, cancel: Cancel | None = None, **flags: Unpack[LsFlags]) -> Report:
    """:func:`farhaul.ls`."""
    return await _on_thread(commands.ls, None, *places, cancel=cancel, **flags)


async def bench(
    host: str, *, progress: Progress | None = None, cancel: Cancel | None = None, **flags: Unpack[BenchFlags]
) -> Bench:
    """:func:`farhaul.bench`."""
    return await _on_thread(commands.bench, progress, host, cancel=cancel, **flags)


async def doctor(
    host: str | None = None, *, cancel: Cancel | None = None, **flags: Unpack[DoctorFlags]
) -> Report:
    """:func:`farhaul.doctor`."""
    return await _on_thread(commands.doctor, None, host, cancel=cancel, **flags)


async def simulate(scenario: Any, *, progress: Progress | None = None, **given: Any) -> Simulation:
    """:func:`farhaul.simulate`."""
    return await _on_thread(simulation.simulate, progress, scenario, **given)


async def sweep(scenario: Any, out: Any, *, progress: Progress | None = None, **given: Any) -> Sweep:
    """:func:`farhaul.sweep`."""
    return await _on_thread(_sweep, progress, scenario, out, **given)


async def copy_sharded(*places: Any, progress: Progress | None = None, **given: Any) -> Report:
    """:func:`farhaul.copy_sharded`."""
    return await _on_thread(_copy_sharded, progress, *places, **given)
