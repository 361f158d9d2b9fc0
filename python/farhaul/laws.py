"""Congestion laws as Python classes, for study: the methods are those of the Rust traits.

Times and durations are in seconds, sizes in bytes, rates in bit/s. Only what a class defines is called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ._farhaul import AckEvent, Allowance, Arrival, LossEvent
from .errors import _usage


class CongestionController:
    """The sending half of a law. One object is made for each end of each session.

    ``on_ack``, ``on_loss`` and ``allowance`` are needed; a class that derives from this one may also
    define what is listed in ``OPTIONAL``, with the arguments given there. ``receiver`` names the class
    of its receiving half, if it has one.
    """

    receiver: Callable[[], ReceiverLaw] | None = None

    REQUIRED = ("on_ack", "on_loss", "allowance")
    OPTIONAL = {
        "on_start": "now, path: the connection opened",
        "on_close": "now: it closes",
        "on_sent": "now, bytes, path: once per batch sent",
        "on_timeout": "now, backoff: no feedback for a whole timeout",
        "on_undo": "now: the losses of the last episode proved spurious",
        "on_idle_restart": "now, idle: sending resumes with nothing in flight",
        "on_message": "now, bytes: of the receiving half",
        "message": "now: bytes to the receiving half, at most 255, or None",
        "on_tick": "now: the law's own timer",
        "next_tick": "when to call it, or None",
        "sample_window": "how long a delivery-rate sample should reach, or None",
        "feedback_request": "(interval or None, packets or None)",
        "timeout": "silence after which on_timeout is called, or None",
        "repair_order": "'first' or 'last'",
    }

    def on_ack(self, ack: AckEvent) -> None:
        """Once per feedback packet, after its losses."""
        raise NotImplementedError

    def on_loss(self, loss: LossEvent) -> None:
        """Once per feedback packet or timer that revealed losses."""
        raise NotImplementedError

    def allowance(self) -> Allowance:
        """What may be sent now; asked once after each event."""
        raise NotImplementedError


class ReceiverLaw:
    """The receiving half of a law. One object is made for each session that asks for it."""

    REQUIRED = ("on_arrival",)
    OPTIONAL = {
        "on_start": "now, rtt: the connection opened",
        "on_message": "now, bytes: of the sending half",
        "on_tick": "now: the timer",
        "next_tick": "when to call it, or None",
        "message": "now: bytes to the sending half, at most 255, or None",
        "on_close": "now: the connection closed",
    }

    def on_arrival(self, arrival: Arrival) -> None:
        """Once per received batch."""
        raise NotImplementedError


Law = Callable[[], Any]
#: Makes the bound methods of a new object.
_Maker = Callable[[], dict[str, Callable[..., Any]]]

_BASES: tuple[type, ...] = (CongestionController, ReceiverLaw)


def _defined(law: Any, name: str) -> bool:
    kind = law if isinstance(law, type) else type(law)
    defined = getattr(kind, name, None)
    return callable(defined) and all(defined is not getattr(base, name, None) for base in _BASES)


def _check(law: Any, base: type) -> None:
    missing = [name for name in base.REQUIRED if not _defined(law, name)]  # type: ignore[attr-defined]
    if missing:
        kind = law if isinstance(law, type) else type(law)
        raise _usage(
            f"the law {kind.__name__} does not define {', '.join(missing)}",
            f"a law defines {', '.join(base.REQUIRED)}",  # type: ignore[attr-defined]
        )


def _maker(law: Law, base: type) -> _Maker:
    if isinstance(law, type):
        _check(law, base)
    names = (*base.REQUIRED, *base.OPTIONAL)  # type: ignore[attr-defined]

    def make() -> dict[str, Callable[..., Any]]:
        made = law()
        _check(made, base)
        return {name: getattr(made, name) for name in names if _defined(made, name)}

    return make


def name_of(law: Law) -> str:
    """That of a class, or of what a partial calls."""
    function = getattr(law, "func", law)
    return str(getattr(function, "__name__", type(law).__name__))


def halves(law: Law) -> tuple[_Maker, _Maker | None]:
    """What makes both halves of a law."""
    receiver = getattr(getattr(law, "func", law), "receiver", None)
    return (
        _maker(law, CongestionController),
        None if receiver is None else _maker(receiver, ReceiverLaw),
    )
