"""Scenarios as Python objects: what they hold is a scenario file, by the same keys.

No key is checked here. A scenario becomes TOML, which the simulator reads as it reads a file: whatever
is unknown, misspelt or without its unit is refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from . import _farhaul
from .laws import Law


class _Table(dict[str, Any]):
    """A table of a scenario file."""

    def __init__(self, keys: Mapping[str, Any]) -> None:
        # `from` is a word of Python: `from_`.
        super().__init__({k.rstrip("_"): v for k, v in keys.items() if v is not None})

    def __repr__(self) -> str:
        keys = ", ".join(f"{k}={v!r}" for k, v in self.items())
        return f"{type(self).__name__}({keys})"


class Path(_Table):
    """A link, both ways: ``Path(rate="10Gbit", rtt="100ms", loss="1%")``; any key of ``[[link]]``."""

    def __init__(
        self,
        *,
        name: str = "path",
        rate: str | None = None,
        rtt: str | None = None,
        loss: str | float | None = None,
        queue: str | None = None,
        **keys: Any,
    ) -> None:
        super().__init__(
            {"name": name, "rate": rate, "rtt": rtt, "loss": loss, "queue": queue, **keys}
        )


class Flow(_Table):
    """A flow; any key of ``[[flow]]``. ``law`` may be a Python class, or whatever makes an object of one."""

    def __init__(
        self,
        *,
        name: str | None = None,
        protocol: str | None = None,
        law: str | Law | None = None,
        bytes: str | None = None,
        **keys: Any,
    ) -> None:
        super().__init__({"name": name, "protocol": protocol, "law": law, "bytes": bytes, **keys})


class Scenario(_Table):
    """Links and flows for a time; any other key of the file besides, such as ``vary``, ``cross``, ``expect``.

    ``Scenario(Path(rate="1Gbit", rtt="50ms"), Flow(law="cubic"), duration="10s")``
    """

    def __init__(
        self,
        path: Path | Sequence[Path] = (),
        flow: Flow | Sequence[Flow] = (),
        *,
        duration: str | None = None,
        name: str = "scenario",
        **keys: Any,
    ) -> None:
        links = [path] if isinstance(path, Mapping) else list(path)
        flows = [flow] if isinstance(flow, Mapping) else list(flow)
        named = [{"name": f"flow-{i}", **f} if "name" not in f else f for i, f in enumerate(flows)]
        lists = {"link": links, "flow": named}
        super().__init__(
            {"name": name, "duration": duration, **keys, **{k: v for k, v in lists.items() if v}}
        )

    def to_toml(self) -> str:
        """The scenario file, in which laws that are Python classes have the classes' names."""
        return _farhaul.to_toml(text_of(self)[0])


def text_of(document: Mapping[str, Any]) -> tuple[str, dict[str, Law]]:
    """A document as JSON, and the Python laws of its flows by the names that they have in it."""
    from .laws import name_of

    laws: dict[str, Law] = {}
    # A class may be called as a law of the simulator is.
    others = {law for flow in document.get("flow", ()) if isinstance(law := flow.get("law"), str)}
    flows = []
    for flow in document.get("flow", ()):
        law = flow.get("law")
        if callable(law):
            name = base = name_of(law)
            number = 1
            while name in others or (name in laws and laws[name] is not law):
                number += 1
                name = f"{base}-{number}"
            laws[name] = law
            flow = {**flow, "law": name}
        flows.append(flow)
    whole = dict(document)
    if flows:
        whole["flow"] = flows
    return json.dumps(whole), laws
