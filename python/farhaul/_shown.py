"""How results look: one line as text, a table in a notebook, curves as SVG."""

from __future__ import annotations

import html
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any


class Svg(str):
    """A drawing: notebooks show it, and it is the text of the file."""

    def _repr_svg_(self) -> str:
        return str(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the drawing to a file."""
        Path(path).write_text(self, encoding="utf-8")


def leaves(report: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, object]]:
    """Every member that has a value of its own, by its path; of lists, how long they are."""
    for name, value in report.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{before}{name}.")
        elif isinstance(value, list):
            yield f"{before}{name}", f"{len(value)} entries"
        elif value is not None:
            yield f"{before}{name}", value


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table of HTML."""

    def row(kind: str, cells: Sequence[object]) -> str:
        return "<tr>" + "".join(f"<{kind}>{html.escape(str(cell))}</{kind}>" for cell in cells) + "</tr>"

    return "<table>" + row("th", head) + "".join(row("td", cells) for cells in rows) + "</table>"
