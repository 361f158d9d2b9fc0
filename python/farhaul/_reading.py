"""A session with a server that stays: requests from any thread, and a future for each answer.

- It is closed when there was no request for a while; whoever has a further one opens another.
- One thread takes the answers. It ends with the session; a session ends with the interpreter.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from . import _calls, _farhaul
from .errors import _made

#: Without a request for so long, a session is closed, s.
_IDLE = 30.0
#: Between two looks at whether it is needed, s.
_TICK = 0.5

Ask = Callable[[_farhaul.Reads], int]


class Session:
    """A session that was opened."""

    def __init__(self, command: _farhaul.Command) -> None:
        self._waiting: dict[int, Future[Any]] = {}
        self._lock = threading.Lock()
        self._asked = False
        self._closed = False

        def start() -> _farhaul.Call:
            call, self.reads = _farhaul.read_session(command)
            return call

        self._call = _calls.begin(start, None)
        try:
            while not self.reads.opened(_TICK):
                pass
        except BaseException:
            self._call.cancel()
            _calls.finish(self._call, None)
            raise
        threading.Thread(target=self._take, name="farhaul-reads", daemon=True).start()

    @property
    def closed(self) -> bool:
        """Whether it takes no further requests."""
        return self._closed or self.reads.ended()

    def ask(self, ask: Ask) -> Future[Any] | None:
        """A future for the answer; none if the session has ended."""
        future: Future[Any] = Future()
        with self._lock:
            if self.closed:
                return None
            self._asked = True
            number = ask(self.reads)
            self._waiting[number] = future
        future.add_done_callback(lambda done: self._done(number, done))
        return future

    def _done(self, number: int, done: Future[Any]) -> None:
        if done.cancelled():
            with self._lock:
                self._waiting.pop(number, None)
            self.reads.release(number)

    def _take(self) -> None:
        try:
            self._take_all()
        finally:
            # Whatever ended it, nobody waits for ever.
            with self._lock:
                self._closed = True
                left = list(self._waiting.values())
                self._waiting.clear()
            for future in left:
                if future.set_running_or_notify_cancel():
                    future.set_exception(_made(17, "the session has ended", "ask again", "{}"))
            self._call.cancel()
            _calls.finish(self._call, None)

    def _take_all(self) -> None:
        idle = 0.0
        while (answers := self.reads.answers(_TICK)) is not None:
            for number, answer in answers:
                with self._lock:
                    future = self._waiting.pop(number, None)
                if future is None or not future.set_running_or_notify_cancel():
                    continue
                if isinstance(answer, BaseException):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)
            with self._lock:
                busy = self._asked or self._waiting
                self._asked = False
                idle = 0.0 if busy else idle + _TICK
                self._closed = self._closed or idle >= _IDLE
            if self._closed:
                self.reads.close()

    def close(self) -> None:
        """Ends it, and waits for that."""
        with self._lock:
            self._closed = True
        self.reads.close()
        _calls.finish(self._call, None)
