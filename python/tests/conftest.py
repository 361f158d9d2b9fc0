"""What tests share: a home of their own, and a server of files."""

from pathlib import Path

import pytest

import farhaul


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    """Keys, known servers and caches of nobody else."""
    home = tmp_path / "home"
    home.mkdir()
    for variable in ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.setenv(variable, str(home))
    return home


class Served:
    """A share of a server that runs."""

    def __init__(self, server: farhaul.Server, folder: Path) -> None:
        self.server = server
        self.folder = folder

    def place(self, path: str = "") -> str:
        return f"127.0.0.1:{self.server.port}::in/{path}"


@pytest.fixture
def served(tmp_path):
    folder = tmp_path / "share"
    folder.mkdir()
    with farhaul.serve({"in": f"{folder}:rw"}, allow="any", listen="127.0.0.1:0") as server:
        yield Served(server, folder)
