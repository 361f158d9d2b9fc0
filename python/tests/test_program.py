"""The package's program: the script ``farhaul`` and ``python -m farhaul`` are the command line, and the package says what
it is."""

import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import farhaul

SCRIPT = [str(Path(sysconfig.get_path("scripts"), "farhaul"))]
MODULE = [sys.executable, "-m", "farhaul"]


def run(command, *words):
    return subprocess.run(
        [*command, *words], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("command", [SCRIPT, MODULE])
def test_the_program_has_its_version_its_words_and_its_exit_codes(command):
    assert run(command, "--version").stdout == f"farhaul {farhaul.__version__}\n"
    missing = run(command, "cp", "--json", "/nonexistent", "h::s/x")
    assert missing.returncode == 3, missing.stderr
    assert json.loads(missing.stdout)["exit"]["name"] == "source_missing"
    assert missing.stderr.startswith("farhaul: no source can be read: /nonexistent")
    assert run(command, "cp", "a").returncode == 2


@pytest.mark.parametrize("command", [SCRIPT, MODULE])
def test_an_interrupt_is_the_programs_own(command, tmp_path):
    words = ["serve", "--share", f"x={tmp_path}", "--allow", "any", "--listen", "127.0.0.1:0"]
    server = subprocess.Popen(
        [*command, *words],
        stderr=subprocess.PIPE,
        text=True,
        # Whoever runs the tests may ignore it, and so would this.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    listening = next(line for line in server.stderr if line.startswith("listening on "))
    port = listening.split(":")[1].split("/")[0]
    assert farhaul.ls(f"127.0.0.1:{port}::", trust_any=True)
    os.kill(server.pid, signal.SIGINT)
    said = server.stderr.read()
    assert server.wait(timeout=60) == 0, said
    assert "Traceback" not in said


def test_a_copy_through_the_program(served, tmp_path):
    (tmp_path / "file").write_bytes(b"content")
    copied = run(MODULE, "cp", "--trust-any", str(tmp_path / "file"), served.place())
    assert copied.returncode == 0, copied.stderr
    assert (served.folder / "file").read_bytes() == b"content"


def test_the_package_says_what_it_is():
    package = importlib.metadata.distribution("farhaul")
    told = package.metadata
    assert told["License-Expression"] == "MIT OR Apache-2.0"
    assert {"LICENSE-MIT", "LICENSE-APACHE"} <= set(told.get_all("License-File"))
    assert told["Requires-Python"] == ">=3.10"
    assert "farhaul" in told["Author"]
    assert "Tag: cp310-abi3-" in package.read_text("WHEEL")
    names = [str(file) for file in package.files]
    assert any(name.endswith("licenses/LICENSE-MIT") for name in names), names
    assert "farhaul/py.typed" in names
