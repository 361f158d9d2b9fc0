"""Are the keywords of calls the flags of their commands, when they are called and for type checkers?

As a program it prints the stub of this build: ``python test_flags.py >../farhaul/_flags.pyi``.
"""

import keyword
import subprocess
import sys
from pathlib import Path

import pytest

import farhaul
from farhaul import _farhaul, aio, fs

COMMANDS = ("bench", "bench serve", "cp", "doctor", "ls", "protocols", "serve")
#: What calls give themselves, or have as parameters of their own.
OWN = {"allow", "cancel", "help", "json", "json_stream", "progress", "quiet", "share", "version"}
#: What programs may add to.
OPEN = {"cc", "protocol"}
HEAD = '''\
# Made of the definition of the flags: tests/test_flags.py prints it.
from collections.abc import Sequence
from os import PathLike
from typing import Literal

from typing_extensions import TypedDict

_Switch = bool | None
_Value = str | int | float | PathLike[str] | None
'''


def kind(word, takes_value, may_go_without, repeated, choices):
    if not takes_value:
        return "_Switch"
    choices = [] if word in OPEN else choices
    value = f"Literal[{', '.join(repr(choice) for choice in choices)}] | None" if choices else "_Value"
    if repeated:
        value += f" | Sequence[{value}]"
    return value + (" | bool" if may_go_without else "")


def stub():
    lines = [HEAD]
    for command in COMMANDS:
        name = "".join(word.capitalize() for word in command.split())
        lines.append(f"class {name}Flags(TypedDict, total=False):")
        flags = {flag[0].replace("-", "_"): flag for flag in _farhaul.flags(command)}
        shown = [flag for flag in sorted(flags.items()) if flag[0] not in OWN and not flag[1][-1]]
        for word, (_, *of_value, _) in shown:
            lines.append(f"    {word}{'_' * keyword.iskeyword(word)}: {kind(word, *of_value)}")
        lines.append("" if shown else "    pass\n")
    return "\n".join(lines)


def test_the_stub_is_what_the_definition_says():
    there = Path(__file__).parents[1] / "farhaul/_flags.pyi"
    assert there.read_text() == stub(), "run this file as a program, and keep what it prints as _flags.pyi"


@pytest.mark.parametrize(
    ("call", "meant"),
    [
        (lambda: farhaul.copy("a", "h::s/x", max_rat="1Gbit"), "did you mean 'max_rate'"),
        (lambda: farhaul.copy("a", "h::s/x", zzz=1), "farhaul cp --help"),
        (lambda: farhaul.serve({"x": "/"}, alow="any"), "did you mean 'allow'"),
        (lambda: farhaul.bench_server(listn=1), "did you mean 'listen'"),
        (lambda: aio.asyncio.run(aio.ls("h::", trust_all=True)), "did you mean 'trust_any'"),
        (lambda: fs.FarhaulFileSystem("h", trustany=True), "did you mean 'trust_any'"),
    ],
)
def test_a_misspelt_keyword_is_a_type_error(call, meant):
    with pytest.raises(TypeError, match=meant):
        call()


def test_a_type_checker_knows_the_keywords():
    pytest.importorskip("mypy", reason="mypy is not installed")
    right = 'farhaul.copy("a", "b", max_rate="1Gbit", delete=True, exclude=["*.o"], policy="low")'
    wrong = ('farhaul.copy("a", "b", max_rat="1Gbit")', 'farhaul.copy("a", "b", delete="yes")', "farhaul.bench_server(listn=1)")
    program = "\n".join(["import farhaul", right, *wrong])
    ran = subprocess.run([sys.executable, "-m", "mypy", "--strict", "-c", program], capture_output=True, text=True, check=False)
    found = [line.split(":")[1] for line in ran.stdout.splitlines() if "error:" in line]
    assert found == ["3", "4", "5"], ran.stdout + ran.stderr
    assert '"max_rat"' in ran.stdout and "listn" in ran.stdout


if __name__ == "__main__":
    print(stub(), end="")
