"""What can go wrong: one class per row of the table of exit codes, made from that table.

``usage`` is :class:`UsageError`, ``no_space`` is :class:`NoSpaceError`, and so on; whatever ended a
call from outside is :class:`Interrupted`.
"""

from __future__ import annotations

import json
from typing import Any

from . import _farhaul


class Error(Exception):
    """Something failed, as the command of the same name would.

    ``name``, ``code`` and ``retryable`` are those of the table of exit codes, ``text`` is the cause
    and what to do about it, ``fix`` the latter alone, ``report`` what ``--json`` would have printed.
    """

    name: str = "internal"
    code: int = 1
    retryable: bool = False

    def __init__(self, text: str, fix: str = "", report: dict[str, Any] | None = None) -> None:
        super().__init__(text, fix, report)
        self.text = text
        self.fix = fix
        self.report = report or {}

    def __str__(self) -> str:
        return f"{self.text} ({self.name}, {self.code})"


#: Codes from here on are those of signals.
_SIGNALS = 128

#: The class of every code but 0.
BY_CODE: dict[int, type[Error]] = {}


def _class_name(name: str, code: int) -> str:
    if code > _SIGNALS:
        return "Interrupted"
    words = "".join(word.capitalize() for word in name.split("_"))
    return words if words.endswith("Error") else words + "Error"


def _classes() -> None:
    # Of the signals, an interrupt comes first: its code is that of the class.
    rows = sorted(_farhaul.exits(), key=lambda row: (row[0] > _SIGNALS, row[1] != "int"))
    for code, name, retryable, meaning, fix in rows:
        if code == 0:
            continue
        class_name = _class_name(name, code)
        if class_name not in globals():
            members = {
                "__doc__": f"{meaning[0].upper()}{meaning[1:]}. What to do: {fix}.",
                "__module__": __name__,
                "name": name,
                "code": code,
                "retryable": retryable,
            }
            globals()[class_name] = type(class_name, (Error,), members)
        BY_CODE[code] = globals()[class_name]


_classes()


def _made(code: int, text: str, fix: str, report: str) -> Error:
    """The exception of a failure; called by the native module."""
    made = BY_CODE.get(code, Error)(text, fix, json.loads(report))
    if code > _SIGNALS:
        made.code, made.name = code, str(made.report.get("exit", {}).get("name", made.name))
    return made


def _usage(text: str, fix: str = "") -> Error:
    """Invalid arguments."""
    return BY_CODE[2](f"{text}: {fix}" if fix else text, fix)
