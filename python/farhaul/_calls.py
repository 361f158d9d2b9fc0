"""How a native call is waited for: its events, interrupts, cancellation, forks, the interpreter's end.

- Whatever ends the wait early cancels the call and waits for its end, so that no thread is left; a
  second interrupt meanwhile leaves it to end alone.
- When the interpreter ends, what still runs is cancelled and waited for, for a bounded time.
- A process that was forked while a call ran cannot call any more: threads do not survive a fork.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from . import _farhaul
from .errors import _usage

Event = dict[str, Any]
#: Called with every event of a call, by the thread that waits for it.
Progress = Callable[[Event], object]

#: Between two looks at signals, s.
_TICK = 0.1
#: How long calls may take to end when the interpreter does, s.
_LAST = 10.0

_log = logging.getLogger("farhaul")
_live: weakref.WeakSet[_farhaul.Call] = weakref.WeakSet()
#: Taken again by a handler of a signal that interrupts who has it.
_lock = threading.RLock()
_forked_busy = False


class Cancel:
    """Ends the calls that it was given to, from any thread, as an interrupt ends the command.

    They raise :class:`farhaul.errors.Interrupted`; an interrupted copy goes on when it is called
    again. A token that was cancelled stays so.
    """

    def __init__(self) -> None:
        self._calls: weakref.WeakSet[Any] = weakref.WeakSet()
        self._lock = threading.RLock()
        self._cancelled = False

    @property
    def cancelled(self) -> bool:
        """Whether it was."""
        return self._cancelled

    def cancel(self) -> None:
        """Ends what runs, and what is begun with it later."""
        with self._lock:
            self._cancelled = True
            calls = list(self._calls)
        for call in calls:
            call.cancel()

    def _add(self, call: Any) -> None:
        """Cancels ``call``, too, as long as somebody has it."""
        with self._lock:
            self._calls.add(call)
            cancelled = self._cancelled
        if cancelled:
            call.cancel()


def begin(start: Callable[[], _farhaul.Call], cancel: Cancel | None) -> _farhaul.Call:
    """Starts a call."""
    if _forked_busy:
        raise _usage(
            "this process was forked while farhaul was working in its parent, and threads do not survive a fork",
            "fork before the first call, or use the start method 'spawn' or 'forkserver'",
        )
    call = start()
    with _lock:
        _live.add(call)
    if cancel is not None:
        cancel._add(call)
    return call


def next_event(call: _farhaul.Call, timeout: float = _TICK) -> Event | None:
    """The next event but messages for people, which go to the log."""
    text = call.next(timeout)
    if text is None:
        return None
    event: Event = json.loads(text)
    if event.get("type") == "message":
        _log.warning("%s", event["text"])
        return None
    return event


def finish(call: _farhaul.Call, progress: Progress | None, cancel: Cancel | None = None) -> None:
    """Waits for the end. Of what was cancelled there is no more progress."""
    here = os.getpid()
    try:
        while not call.ended():
            event = next_event(call)
            if event is not None and progress is not None and not (cancel and cancel.cancelled):
                progress(event)
    except BaseException:
        # Its thread is not in a process that `progress` forked.
        if os.getpid() == here:
            call.cancel()
            while not call.ended():
                call.next(_TICK)
        raise
    finally:
        with _lock:
            if call.ended():
                _live.discard(call)


def run(
    start: Callable[[], _farhaul.Call], progress: Progress | None, cancel: Cancel | None
) -> _farhaul.Given:
    """Starts a call, waits for its end, and returns what it gave."""
    call = begin(start, cancel)
    finish(call, progress, cancel)
    return call.result()


def _at_exit() -> None:
    with _lock:
        calls = list(_live)
    for call in calls:
        call.cancel()
    until = time.monotonic() + _LAST
    for call in calls:
        while not call.ended() and time.monotonic() < until:
            call.next(_TICK)


def _after_fork_in_child() -> None:
    # Whatever held the locks is not here any more.
    global _forked_busy, _live, _lock
    _forked_busy = _forked_busy or len(_live) > 0
    _live, _lock = weakref.WeakSet(), threading.RLock()


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_after_fork_in_child)
