"""The commands: ``copy``, ``ls``, ``serve``, ``bench``, ``doctor``, ``protocols``.

Every flag of a command is a keyword argument: ``--max-rate 1Gbit`` is ``max_rate="1Gbit"``, a flag
without a value is ``True``, or ``False`` where it is configured and must not hold, one that may be repeated is a list. Flags are checked by the command's own
definition, from which their types are made (``_flags.pyi``), and what the user has configured holds as it does there.
"""

from __future__ import annotations

import difflib
import functools
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from . import _calls, _farhaul
from ._calls import Cancel, Progress
from ._shown import Svg, leaves, table
from .errors import _usage

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._flags import BenchFlags, BenchServeFlags, CpFlags, DoctorFlags, LsFlags, ProtocolsFlags, ServeFlags

Place = str | os.PathLike[str]
L = TypeVar("L", bound="_Listening")


class Report(dict[str, Any]):
    """What ``--json`` of a command prints; its members are attributes, too."""

    def __getattr__(self, name: str) -> Any:
        try:
            value = self[name]
        except KeyError:
            raise AttributeError(f"the report has no '{name}'; it has {', '.join(self)}") from None
        return Report(value) if isinstance(value, dict) else value

    def __repr__(self) -> str:
        own = [f"{name}={value!r}" for name, value in self.items() if not isinstance(value, (dict, list))]
        return f"{type(self).__name__}({', '.join(own)})"

    def __str__(self) -> str:
        return dict.__repr__(self)

    def _repr_html_(self) -> str:
        return table(("member", "value"), leaves(self))


class Bench(Report):
    """What ``bench --json`` prints, with a drawing."""

    def plot(self) -> Svg:
        """The goodput over time."""
        nothing = (None,) * 5
        moments = [(each["to"], each["goodput_bits_per_second"], *nothing) for each in self["intervals"]]
        return Svg(_farhaul.draw("bench", [("bench", moments)]))


@functools.cache
def _keywords(command: str) -> frozenset[str]:
    """The flags of a command as keywords."""
    return frozenset(flag[0].replace("-", "_") for flag in _farhaul.flags(command))


def _check(command: str, given: Iterable[str]) -> None:
    known = _keywords(command)
    for name in given:
        if name.rstrip("_") not in known:
            meant = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean '{meant[0]}'?" if meant else f"; `farhaul {command} --help` lists its flags"
            raise TypeError(f"'{name}' is no flag of `farhaul {command}`{hint}")


def _command(name: str, keywords: Mapping[str, Any], places: Iterable[Place] = (), **own: bool) -> _farhaul.Command:
    """A command with its flags by keywords, and those that the call gives it."""
    _check(name, keywords)
    flags: list[tuple[str, bool | str]] = list(own.items())
    for keyword, given in keywords.items():
        flag = keyword.rstrip("_").replace("_", "-")
        for value in given if isinstance(given, (list, tuple)) else [given]:
            if isinstance(value, os.PathLike):
                flags.append((flag, os.fspath(value)))
            elif value is not None:
                flags.append((flag, value if isinstance(value, bool) else str(value)))
    return name, flags, [os.fspath(place) for place in places]


def _run(command: _farhaul.Command, progress: Progress | None, cancel: Cancel | None) -> Report:
    text, _ = _calls.run(lambda: _farhaul.start(command, progress is not None), progress, cancel)
    return Report(json.loads(text))


def copy(
    source: Place | Sequence[Place],
    destination: Place,
    *,
    progress: Progress | None = None,
    cancel: Cancel | None = None,
    **flags: Unpack[CpFlags],
) -> Report:
    """Copies files to a server or from one, as ``farhaul cp`` does, and returns its summary.

    Places are written as there: ``host::share/path``, ``farhaul://host/share/path``,
    ``[user@]host:path`` through ssh, a ticket, or a local path. ``progress`` is called with the events
    of ``--json-stream``, at most a few times a second but for one for each file, by the thread that waits.

    An interrupt, ``cancel`` or an exception of ``progress`` ends the copy; the same call continues it.
    """
    sources = [source] if isinstance(source, (str, os.PathLike)) else list(source)
    command = _command("cp", flags, (*sources, destination), json=True, quiet=True)
    return _run(command, progress, cancel)


def ls(*places: Place, cancel: Cancel | None = None, **flags: Unpack[LsFlags]) -> Report:
    """Lists what can be fetched from a server, as ``farhaul ls`` does."""
    return _run(_command("ls", flags, places, json=True), None, cancel)


def bench(
    host: str, *, progress: Progress | None = None, cancel: Cancel | None = None, **flags: Unpack[BenchFlags]
) -> Bench:
    """Measures from memory to memory to a ``farhaul bench serve``, as ``farhaul bench`` does.

    ``progress`` is called with an event ``connected`` and one ``interval`` per interval (1 s).
    """
    return Bench(_run(_command("bench", flags, [host], json=True), progress, cancel))


def doctor(host: str | None = None, *, cancel: Cancel | None = None, **flags: Unpack[DoctorFlags]) -> Report:
    """Tests this machine, and the way to ``host``, as ``farhaul doctor`` does."""
    named = [] if host is None else [host]
    return _run(_command("doctor", flags, named, json=True), None, cancel)


def protocols(**flags: Unpack[ProtocolsFlags]) -> Report:
    """The protocols and congestion laws that there are."""
    return _run(_command("protocols", flags, json=True), None, None)


class _Listening:
    """A server that runs in this process until it is stopped, or until the interpreter ends."""

    def __init__(self, command: _farhaul.Command) -> None:
        self._process = os.getpid()
        self._call = _calls.begin(lambda: _farhaul.start(command, False), None)
        self._stopped = False
        try:
            self._at = self._wait()
        except BaseException:
            self._call.cancel()
            _calls.finish(self._call, None)
            raise

    def _wait(self) -> _calls.Event:
        while not self._call.ended():
            event = _calls.next_event(self._call)
            if event is not None and event["type"] == "listening":
                return event
        self._stopped = True
        self._call.result()
        raise RuntimeError("the server ended before it listened")

    @property
    def address(self) -> str:
        """Where it listens, as ``127.0.0.1:17992``; with another address family's any-address as it is."""
        return str(self._at["address"])

    @property
    def port(self) -> int:
        """The number of its UDP port."""
        return int(self.address.rpartition(":")[2])

    def stop(self) -> None:
        """Ends it and its sessions, and waits until it has ended; copies under way can be continued later.

        Raises what it failed with, if it did.
        """
        if os.getpid() != self._process:
            raise _usage(
                "this server runs in the process that this one was forked from",
                "stop it there",
            )
        if self._stopped:
            return
        self._stopped = True
        self._call.cancel()
        _calls.finish(self._call, None)
        self._call.result()

    def __enter__(self: L) -> L:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Server(_Listening):
    """A ``farhaul serve`` in this process; a context manager that stops it at its end."""

    @property
    def key(self) -> str:
        """Its public key."""
        return str(self._at["key"])


class BenchServer(_Listening):
    """A ``farhaul bench serve`` in this process; a context manager that stops it at its end."""


def serve(
    shares: Mapping[str, Place], *, allow: str | Sequence[str] = (), **flags: Unpack[ServeFlags]
) -> Server:
    """Lets peers fetch and deliver files until it is stopped, as ``farhaul serve`` does.

    ``shares`` are names and folders, as ``{"in": "/scratch:rw"}``; ``allow`` names the keys of those who
    may use them, or ``"any"``. By default there is no control socket, and warnings alone are written.
    """
    flags.setdefault("control", "off")
    named = [f"{name}={os.fspath(path)}" for name, path in shares.items()]
    allowed = [allow] if isinstance(allow, str) else list(allow)
    return Server(_command("serve", {"share": named, "allow": allowed, **flags}, quiet=True))


def bench_server(**flags: Unpack[BenchServeFlags]) -> BenchServer:
    """Answers ``bench()`` until it is stopped, as ``farhaul bench serve`` does."""
    return BenchServer(_command("bench serve", flags, json=True))
