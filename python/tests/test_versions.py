"""Does the package work with programs of the previous version, or say which end is too old?"""

import json
import os
import re
import subprocess
from contextlib import contextmanager

import pytest

import farhaul
from farhaul import errors
from farhaul.fs import FarhaulFileSystem

PREVIOUS = os.environ.get("PREVIOUS_FARHAUL")
pytestmark = pytest.mark.skipif(PREVIOUS is None, reason="PREVIOUS_FARHAUL names no program of the previous version")


@contextmanager
def serving(folder):
    """A server of the previous version; its port."""
    words = ["serve", "--listen", "127.0.0.1:0", "--allow", "any", "--share", f"in={folder}:rw"]
    with subprocess.Popen([PREVIOUS, *words], stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True) as server:
        try:
            address = re.compile(r"127\.0\.0\.1:(\d+)")
            yield next(int(found[1]) for line in server.stdout if (found := address.search(line)))
        finally:
            server.kill()


def test_a_previous_server_takes_and_gives_files_and_is_too_old_to_be_read_from(tmp_path):
    folder = tmp_path / "share"
    folder.mkdir()
    (tmp_path / "a").write_bytes(os.urandom(3_000_000))
    with serving(folder) as port:
        assert farhaul.copy(tmp_path / "a", f"127.0.0.1:{port}::in/", trust_any=True).ok
        assert farhaul.copy(f"127.0.0.1:{port}::in/a", tmp_path / "b", trust_any=True).ok
        assert (tmp_path / "b").read_bytes() == (tmp_path / "a").read_bytes()
        fs = FarhaulFileSystem("127.0.0.1", port, trust_any=True, skip_instance_cache=True)
        with pytest.raises(errors.VersionError, match="reads") as old:
            fs.cat("in/a")
        assert "install farhaul" in old.value.fix
        # Files are written there by copies.
        fs.pipe_file("in/c", b"abc")
        assert (folder / "c").read_bytes() == b"abc"


def test_a_previous_client_copies_with_a_server_of_the_package(served, tmp_path):
    (tmp_path / "a").write_bytes(os.urandom(3_000_000))
    command = [PREVIOUS, "cp", "--trust-any", "--json", str(tmp_path / "a"), served.place()]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(ran.stdout)["ok"]
    assert (served.folder / "a").read_bytes() == (tmp_path / "a").read_bytes()
