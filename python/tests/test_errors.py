"""Are failures what the table of exit codes says, and what the stubs declare?"""

import ast
import pickle
from pathlib import Path

import pytest

import farhaul
from farhaul import _farhaul, errors


def test_every_row_of_the_table_is_a_class_with_its_code():
    rows = [row for row in _farhaul.exits() if row[0] != 0]
    assert len(rows) >= 21
    for code, name, retryable, _, fix in rows:
        known = errors.BY_CODE[code]
        assert issubclass(known, farhaul.Error)
        if code < 128:
            assert (known.code, known.name, known.retryable) == (code, name, retryable)
            assert fix in (known.__doc__ or "")
        else:
            assert known is errors.Interrupted


def test_the_stubs_declare_what_the_table_makes():
    stub = ast.parse(Path(errors.__file__).with_suffix(".pyi").read_text())
    declared = {node.name for node in stub.body if isinstance(node, ast.ClassDef)}
    made = {known.__name__ for known in errors.BY_CODE.values()}
    assert declared == made | {"Error"}


def is_declared(name):
    return not name.startswith("__") or "arrow" in name or name == "__len__"


def test_the_stubs_of_the_native_module_declare_what_it_has():
    stub = ast.parse(Path(errors.__file__).with_name("_farhaul.pyi").read_text())
    for node in stub.body:
        if isinstance(node, ast.FunctionDef):
            assert callable(getattr(_farhaul, node.name))
        if isinstance(node, ast.ClassDef):
            members = {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
            native = {name for name in vars(getattr(_farhaul, node.name)) if is_declared(name)}
            assert members - {"__init__"} == native, node.name


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: farhaul.copy("a", "h::s/x", max_rate="10"), errors.UsageError, "unit"),
        (lambda: farhaul.copy("-", "h::s/x"), errors.UsageError, "standard input"),
        (lambda: farhaul.copy("/nonexistent", "h::s/x"), errors.SourceMissingError, "/nonexistent"),
        (lambda: farhaul.bench("a.invalid"), errors.NetSetupError, "a.invalid"),
        (lambda: farhaul.bench("127.0.0.1:1", cc="cubik"), errors.UsageError, "did you mean 'cubic'"),
        (lambda: farhaul.bench("127.0.0.1:1", time="2"), errors.UdpBlockedError, "127.0.0.1"),
        (lambda: farhaul.serve({"x": "/nonexistent"}), errors.ConfigError, "/nonexistent"),
    ],
)
def test_failures_have_cause_and_fix(call, kind, words):
    with pytest.raises(kind) as raised:
        call()
    error = raised.value
    assert words in error.text, error.text
    assert error.fix
    assert error.report["exit"]["code"] == error.code


def test_an_exception_survives_pickling():
    error = errors.LockedError("in use", "wait", {"ok": False})
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is errors.LockedError
    assert (again.text, again.fix, again.report) == (error.text, error.fix, error.report)
