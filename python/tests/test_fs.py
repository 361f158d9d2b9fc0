"""Do shares work as a file system of fsspec, with what is made for one, and what of servers, files and programs that go?"""

import asyncio
import gc
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from contextlib import contextmanager

import dask.dataframe
import fsspec
import numpy
import pandas
import pytest
import xarray

import farhaul
from farhaul import _reading, errors
from farhaul.fs import DeniedError, FarhaulFileSystem, MissingError

MIB = 1 << 20


@pytest.fixture
def fs(served):
    made = FarhaulFileSystem("127.0.0.1", served.server.port, trust_any=True, skip_instance_cache=True)
    yield made
    made.close()


@pytest.fixture
def url(served):
    return f"farhaul://127.0.0.1:{served.server.port}/in"


OPTIONS = {"trust_any": True}


def content(file, size):
    file.parent.mkdir(parents=True, exist_ok=True)
    written = random.Random(size).randbytes(size)
    file.write_bytes(written)
    return written


@contextmanager
def relay(port, *flags):
    """A port that leads to another over an emulated path."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        near = free.getsockname()[1]
    words = ["--listen", f"127.0.0.1:{near}", "--to", f"127.0.0.1:{port}", *flags]
    with subprocess.Popen([os.environ["FARHAUL"], "wan", "relay", *words], stderr=subprocess.DEVNULL) as running:
        try:
            yield near
        finally:
            running.terminate()


def test_names():
    fs, path = fsspec.core.url_to_fs("farhaul://far:5/in/a b/c%20", trust_any=True, skip_instance_cache=True)
    assert (fs.host, fs.port, path) == ("far", 5, "in/a b/c%20")
    assert fs.unstrip_protocol(path) == "farhaul://far:5/in/a b/c%20"
    fs, path = fsspec.core.url_to_fs("farhaul://far.example.org/in/", skip_instance_cache=True)
    assert (fs.host, fs.port, path) == ("far.example.org", 17992, "in")
    # fsspec takes :: for the border between two names, but not here.
    url = "farhaul://[2001:db8::1]:5/in"
    assert FarhaulFileSystem._get_kwargs_from_urls(url) == {"host": "2001:db8::1", "port": 5}
    fs = FarhaulFileSystem("::1", 5, skip_instance_cache=True)
    assert fs.unstrip_protocol("in/a") == "farhaul://[::1]:5/in/a"


def test_what_is_there(fs, served):
    content(served.folder / "a.bin", 10)
    content(served.folder / "d/e/f.bin", 20)
    (served.folder / "link").symlink_to("a.bin")
    odd = os.fsdecode(b"odd \xff\n name")
    content(served.folder / odd, 1)
    assert [entry["name"] for entry in fs.ls("")] == ["in"]
    assert sorted(fs.ls("in", detail=False)) == sorted(["in/a.bin", "in/d", "in/link", f"in/{odd}"])
    info = fs.info("in/a.bin")
    assert (info["type"], info["size"], info["mode"]) == ("file", 10, 0o644)
    assert abs(info["mtime"] - (served.folder / "a.bin").stat().st_mtime) < 1e-6
    assert fs.info("in/link")["destination"] == "a.bin"
    assert fs.glob("in/**/*.bin") == ["in/a.bin", "in/d/e/f.bin"]
    assert fs.isdir("in/d") and not fs.exists("in/none")
    assert fs.cat(f"in/{odd}") == (served.folder / odd).read_bytes()
    for name in ("a", "\u00e9" * 20):
        for number in range(700):
            (served.folder / "d" / f"{name}{number}").touch()
    assert len(fs.ls("in/d")) == 1_401, "more than one message"


def test_ranges_are_those_of_the_file(fs, served):
    whole = content(served.folder / "large", 10 * MIB + 7)
    assert fs.cat_file("in/large") == whole
    assert fs.cat_file("in/large", 5, 5) == b""
    assert fs.cat_file("in/large", -7) == whole[-7:]
    assert fs.cat_file("in/large", 3, -3) == whole[3:-3]
    assert fs.cat_file("in/large", 10 * MIB, 99 * MIB) == whole[10 * MIB :]
    starts = [random.Random(n).randrange(10 * MIB) for n in range(200)]
    ends = [start + 1_000 for start in starts]
    parts = fs.cat_ranges(["in/large"] * 200, starts, ends)
    assert parts == [whole[start:end] for start, end in zip(starts, ends)]
    with fs.open("in/large", block_size=MIB, ahead=3 * MIB) as file:
        for at in (0, 9 * MIB, 2 * MIB + 3, 2 * MIB + 5, 10 * MIB + 6):
            file.seek(at)
            assert file.read(2 * MIB) == whole[at : at + 2 * MIB]
        file.seek(0)
        assert b"".join(iter(lambda: file.read(700_001), b"")) == whole
    with fs.open("in/large", cache_type="bytes") as file:
        assert file.read(100) == whole[:100]


def test_what_is_written_arrives(fs, served, url, tmp_path):
    fs.pipe_file("in/new/sub/a", b"abc")
    assert (served.folder / "new/sub/a").read_bytes() == b"abc"
    assert (served.folder / "new/sub/a").stat().st_mode & 0o777 == 0o666 & ~farhaul.fs._umask()
    with fs.open("in/text", "w") as file:
        file.write("one")
    assert (served.folder / "text").read_text() == "one"
    with fsspec.open(f"{url}/a.gz", "wb", compression="gzip", **OPTIONS) as file:
        file.write(b"packed")
    with fsspec.open(f"{url}/a.gz", "rb", compression="gzip", **OPTIONS) as file:
        assert file.read() == b"packed"
    fs.mkdir("in/folder")
    assert fs.isdir("in/folder")
    tree = tmp_path / "tree"
    first, second = content(tree / "x", 100), content(tree / "y/z", MIB)
    fs.put(str(tree), "in/put", recursive=True)
    assert (served.folder / "put/y/z").read_bytes() == second
    fs.get("in/put", str(tmp_path / "got"), recursive=True)
    assert (tmp_path / "got/x").read_bytes() == first
    with fs.transaction:
        fs.pipe_file("in/later", b"1")
        assert not (served.folder / "later").exists()
    assert (served.folder / "later").read_bytes() == b"1"


def raises(kind):
    """One whose text cannot be had."""

    class Cell:
        def __str__(self):
            raise kind

    return Cell()


def test_what_an_exception_leaves_is_not_delivered(fs, served, url, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (served.folder / "a").write_text("good")
    with pytest.raises(LookupError), fs.open("in/a", "wb") as file:
        file.write(b"bad")
        raise LookupError
    with pytest.raises(LookupError), fs.open("in/a", "w") as file:
        file.write("bad")
        raise LookupError
    with pytest.raises(LookupError), fsspec.open(f"{url}/a", "wb", **OPTIONS) as file:
        file.write(b"bad")
        raise LookupError
    with pytest.raises(LookupError):
        pandas.DataFrame({"x": [1, raises(LookupError)]}).to_csv(f"{url}/a", storage_options=OPTIONS)
    with pytest.raises(LookupError), fs.transaction:
        fs.pipe_file("in/a", b"bad")
        raise LookupError
    with pytest.warns(ResourceWarning, match="never closed"):
        fs.open("in/a", "wb").write(b"bad")
        gc.collect()
    assert (served.folder / "a").read_text() == "good"
    # One that is being handled is no reason.
    try:
        raise LookupError
    except LookupError:
        fs.pipe_file("in/b", b"fine")
    assert (served.folder / "b").read_bytes() == b"fine"
    assert [name for name in os.listdir(tmp_path) if name.startswith("farhaul-")] == []


def test_what_a_share_does_not_permit_is_refused_and_changes_nothing(fs, served, tmp_path):
    content(served.folder / "folder/a", 10)
    source = tmp_path / "source"
    source.write_bytes(b"new")
    for refused in (
        lambda: fs.rm("in/folder/a"),
        lambda: fs.rm("in/folder", recursive=True),
        lambda: fs.rmdir("in/folder"),
        lambda: fs.mv("in/folder/a", "in/t"),
        lambda: fs.mv("in/folder", "in/t"),
    ):
        with pytest.raises(PermissionError, match="rw,delete") as denied:
            refused()
        assert denied.value.code == 15
    with pytest.raises(OSError, match="does not offer"):
        fs.open("in/folder/a", "ab")
    for is_folder in ("in/folder", "in"):
        with pytest.raises(IsADirectoryError):
            fs.open(is_folder, "wb")
        with pytest.raises(IsADirectoryError):
            fs.pipe_file(is_folder, b"1")
        with pytest.raises(IsADirectoryError):
            fs.put_file(str(source), is_folder)
    for exists in (
        lambda: fs.pipe_file("in/folder/a", b"1", mode="create"),
        lambda: fs.put_file(str(source), "in/folder/a", mode="create"),
        lambda: fs.open("in/folder/a", "xb"),
        lambda: fs.mkdir("in/folder"),
        lambda: fs.makedirs("in/folder"),
        lambda: fs.mkdir("in"),
    ):
        with pytest.raises(FileExistsError):
            exists()
    with pytest.raises(ValueError, match="fsspec.open"):
        fs.open("in/a.gz", "wb", compression="gzip")
    assert os.listdir(served.folder) == ["folder"] and os.listdir(served.folder / "folder") == ["a"]
    assert (served.folder / "folder/a").stat().st_size == 10
    # Folders and copies need no more than deliveries do.
    fs.makedirs("in/folder/b/c")
    fs.cp_file("in/folder/a", "in/folder/b/c/a")
    assert (served.folder / "folder/b/c/a").read_bytes() == (served.folder / "folder/a").read_bytes()


@pytest.fixture
def free(tmp_path):
    """A share in which everything may be removed and moved, its server's log and its folder."""
    folder = tmp_path / "free"
    folder.mkdir()
    words = ["serve", "--share", f"in={folder}:rw,delete", "--share", f"other={folder}/other:rw,delete"]
    words += ["--allow", "any", "--listen", "127.0.0.1:0", "--control", "off", "--log-format", "json"]
    (folder / "other").mkdir()
    with subprocess.Popen([os.environ["FARHAUL"], *words], stderr=subprocess.PIPE, text=True) as server:
        port = next(int(found[1]) for line in server.stderr if (found := re.search(r"127\.0\.0\.1:(\d+)", line)))
        made = FarhaulFileSystem("127.0.0.1", port, trust_any=True, skip_instance_cache=True)
        try:
            yield made, folder, server
        finally:
            made.close()
            server.kill()


def names(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_entries_are_removed_moved_and_copied_and_the_server_says_so(free):
    fs, folder, server = free
    for name in ("a", "d/b", "d/e/c"):
        fs.pipe_file(f"in/{name}", name.encode())
    fs.mv("in/a", "in/new/a")
    fs.mv("in/new/a", "in/")
    fs.mv("in/d", "in/new/d")
    fs.makedirs("in/taken/d")
    fs.makedirs("in/d")
    for taken in ("in/taken", "in"):
        with pytest.raises(FileExistsError):
            fs.mv("in/new/d", taken)
    fs.rmdir("in/d")
    fs.rm("in/taken", recursive=True)
    fs.mv("in/new/d", "in/moved")
    fs.mv("in/moved", "in/up")
    assert names(folder) == ["a", "new", "other", "up", "up/b", "up/e", "up/e/c"]
    fs.cp("in/up", "in/copy", recursive=True)
    fs.cp_file("in/a", "other/x/a")
    fs.mv("in/a", "other/b")
    assert names(folder / "other") == ["b", "x", "x/a"] and (folder / "copy/e/c").read_bytes() == b"d/e/c"
    with pytest.raises(IsADirectoryError):
        fs.rm("in/up")
    with pytest.raises(IsADirectoryError):
        fs.rm_file("in/up")
    with pytest.raises(OSError, match="not empty"):
        fs.rmdir("in/up")
    with pytest.raises(FileNotFoundError):
        fs.rm_file("in/none")
    with pytest.raises(OSError, match="does not offer"):
        fs.rm("in", recursive=True)
    with pytest.raises(FileNotFoundError):
        fs.rm("in/../other/b")
    (folder / "up/link").symlink_to("../copy")
    fs.rm("in/up", recursive=True)
    fs.rm("in/new", recursive=True)
    fs.rm("in/cop*", recursive=True)
    fs.rm(["in/other/x/a", "in/other/b"])
    fs.rmdir("in/other/x")
    assert names(folder) == ["other"]
    fs.close()
    server.terminate()
    lines = [json.loads(line) for line in server.stderr.read().splitlines()]
    done = [line for line in lines if line["event"] == "change"]
    moved = next(line for line in done if line["change"] == "move" and line["path"] == "moved")
    assert moved["to"] == "up" and moved["code"] == 0 and moved["share"] == "in" and moved["key"]
    refused = next(line for line in done if line["path"] == "none")
    assert refused["code"] == 3 and refused["error"]
    gone = {line["path"] for line in done if line["change"] == "remove folder" and line["code"] == 0}
    assert gone == {"d", "d/e", "taken", "taken/d", "new", "new/d", "new/d/e", "up", "up/e", "copy", "copy/e", "other/x"}


def test_what_interrupted_copies_left_stays(free):
    fs, folder, _ = free
    fs.makedirs("in/d")
    part = ".a.0123456789abcdef.farhaul-part"
    (folder / "d" / part).write_bytes(b"part")
    for own in (part, ".farhaul-journal-0123456789abcdef"):
        with pytest.raises(FileNotFoundError, match="reserved"):
            fs.rm_file(f"in/d/{own}")
        with pytest.raises(FileNotFoundError, match="reserved"):
            fs.mv(f"in/d/{own}", "in/x")
    with pytest.raises(OSError, match="farhaul clean"):
        fs.rm("in/d", recursive=True)
    assert (folder / "d" / part).read_bytes() == b"part"


def test_a_copy_under_way_keeps_its_folder(free, tmp_path):
    fs, folder, _ = free
    content(tmp_path / "large", 40 * MIB)
    fs.makedirs("in/d")
    with relay(fs.port, "--rtt", "20ms", "--rate", "40Mbit") as port:
        cancel, seen = farhaul.Cancel(), threading.Event()
        place = f"127.0.0.1:{port}::in/d/"

        def note(event):
            if event.get("bytes_done"):
                seen.set()

        def copying():
            with pytest.raises(errors.Interrupted):
                farhaul.copy(tmp_path / "large", place, trust_any=True, cancel=cancel, progress=note)

        thread = threading.Thread(target=copying)
        thread.start()
        try:
            assert seen.wait(20)
            for refused in (lambda: fs.mv("in/d", "in/e"), lambda: fs.rmdir("in/d")):
                with pytest.raises(errors.LockedError) as locked:
                    refused()
                assert locked.value.retryable and isinstance(locked.value, OSError)
        finally:
            cancel.cancel()
            thread.join()
    assert (folder / "d").is_dir()


def test_progress_of_files_is_told(fs, served, tmp_path):
    whole = content(tmp_path / "a", 9 * MIB)

    class Told(fsspec.callbacks.Callback):
        pass

    put, got, cat = Told(), Told(), Told()
    fs.put_file(str(tmp_path / "a"), "in/a", callback=put)
    fs.get_file("in/a", str(tmp_path / "b"), callback=got)
    assert fs.cat_file("in/a", callback=cat) == whole
    for told in (put, got, cat):
        assert (told.size, told.value) == (9 * MIB, 9 * MIB)
    trees = Told()
    fs.get(["in/a", "in/a"], [str(tmp_path / "c"), str(tmp_path / "d")], callback=trees)
    assert (trees.size, trees.value) == (2, 2)
    assert abs(fs.modified("in/a").timestamp() - (served.folder / "a").stat().st_mtime) < 1e-3


def test_stores_are_written_over(free):
    fs, folder, _ = free
    url = f"farhaul://127.0.0.1:{fs.port}/in"
    frame = pandas.DataFrame({"n": range(100)})
    for rows in (100, 10):
        field = xarray.Dataset({"t": (("y", "x"), numpy.random.default_rng(1).random((rows, 8)))})
        field.chunk({"y": 10}).to_zarr(f"{url}/z.zarr", mode="w", storage_options=OPTIONS)
        assert xarray.open_zarr(f"{url}/z.zarr", storage_options=OPTIONS).t.equals(field.t)
        parts = dask.dataframe.from_pandas(frame[:rows], npartitions=rows // 10)
        parts.to_parquet(f"{url}/p", overwrite=True, storage_options=OPTIONS)
        read = dask.dataframe.read_parquet(f"{url}/p", storage_options=OPTIONS)
        assert read.n.sum().compute(scheduler="threads") == frame.n[:rows].sum()
    assert sum(path.suffix == ".parquet" for path in (folder / "p").iterdir()) == 1
    fsspec.filesystem("farhaul", host="127.0.0.1", port=fs.port, **OPTIONS).close()


def test_duckdb_reads_parquet(fs, url):
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    pandas.DataFrame({"n": range(1_000)}).to_parquet(f"{url}/a.parquet", storage_options=OPTIONS)
    with duckdb.connect() as database:
        database.register_filesystem(fs)
        assert database.sql(f"SELECT sum(n) FROM read_parquet('{url}/a.parquet')").fetchall() == [(499_500,)]


def test_names_that_cannot_be_are_missing_and_harm_nobody(fs, served):
    content(served.folder / "a", 10)
    (served.folder / "link").symlink_to("a")
    for name in ("in/../a", "in//a", "in/" + "x" * 300, "in/" + "x/" * 5_000, "in/a/b", "in/none", "x" * 300):
        assert not fs.exists(name), name
        with pytest.raises(FileNotFoundError):
            fs.cat_file(name)
    with pytest.raises(FileNotFoundError):
        fs.cat_file("in/a", 2**63 - 10, 2**63 - 1)
    with pytest.raises(OSError, match="a link"):
        fs.cat_file("in/link", 0, 5)
    with pytest.raises(OSError, match="a link"):
        fs.open("in/link")
    session = fs._session().result()
    assert fs.cat("in/a") and not session.closed, "it is the same session"


def test_what_is_wrong_is_an_exception_with_cause_and_fix(served):
    known_nothing = FarhaulFileSystem("127.0.0.1", served.server.port, skip_instance_cache=True)
    with pytest.raises(DeniedError) as denied:
        known_nothing.ls("in")
    assert isinstance(denied.value, PermissionError) and "key trust" in denied.value.fix
    fs = FarhaulFileSystem("127.0.0.1", served.server.port, trust_any=True, skip_instance_cache=True)
    with pytest.raises(MissingError) as missing:
        fs.open("in/none")
    assert isinstance(missing.value, FileNotFoundError) and missing.value.code == 3
    assert f"farhaul://127.0.0.1:{served.server.port}/in/none" in missing.value.text
    with pytest.raises(DeniedError, match="unknown or not allowed"):
        fs.cat("other/a")
    with pytest.raises(IsADirectoryError):
        fs.open("in")
    fs.close()
    with pytest.raises(errors.ConfigError, match="--identity"):
        FarhaulFileSystem("127.0.0.1", identity="/dev/null/none", skip_instance_cache=True).ls("in")
    with pytest.raises(errors.UsageError):
        FarhaulFileSystem("127.0.0.1", udp_timeout="soon", skip_instance_cache=True).ls("in")
    with pytest.raises(errors.NetSetupError):
        FarhaulFileSystem("none.invalid", skip_instance_cache=True).ls("in")


def test_pandas_dask_and_xarray_use_it_unchanged(served):
    flags = ("--rtt", "100ms", "--rate", "1Gbit")
    with relay(served.server.port, *flags) as port:
        url = f"farhaul://127.0.0.1:{port}/in"
        frame = pandas.DataFrame({"n": range(1_000), "x": numpy.arange(1_000) / 7})
        frame.to_csv(f"{url}/a.csv", index=False, storage_options=OPTIONS)
        assert pandas.read_csv(f"{url}/a.csv", storage_options=OPTIONS).n.sum() == frame.n.sum()
        frame.to_parquet(f"{url}/a.parquet", storage_options=OPTIONS)
        assert pandas.read_parquet(f"{url}/a.parquet", storage_options=OPTIONS).equals(frame)
        for part in range(3):
            frame.to_csv(served.folder / f"part-{part}.csv", index=False)
        parts = dask.dataframe.read_csv(f"{url}/part-*.csv", storage_options=OPTIONS)
        assert parts.n.sum().compute(scheduler="threads") == 3 * frame.n.sum()
        field = xarray.Dataset({"t": (("y", "x"), numpy.random.default_rng(1).random((64, 64)))})
        field.chunk({"y": 16}).to_zarr(f"{url}/new.zarr", storage_options=OPTIONS)
        found = xarray.open_zarr(f"{url}/new.zarr", storage_options=OPTIONS)
        assert found.t.equals(field.t)
        fsspec.filesystem("farhaul", host="127.0.0.1", port=port, **OPTIONS).close()


def test_reads_do_not_wait_for_one_another(served):
    content(served.folder / "large", 8 * MIB)
    with relay(served.server.port, "--rtt", "200ms", "--rate", "10Gbit") as port:
        fs = FarhaulFileSystem("127.0.0.1", port, trust_any=True, skip_instance_cache=True)
        assert fs.size("in/large") == 8 * MIB
        began = time.monotonic()
        parts = fs.cat_ranges(["in/large"] * 200, range(0, 200_000, 1_000), range(1_000, 201_000, 1_000))
        took = time.monotonic() - began
        fs.close()
    assert all(len(part) == 1_000 for part in parts)
    # One after the other they would take 40 s at least.
    assert took < 20


def test_a_file_that_changes_under_its_reader_is_an_error(fs, served):
    content(served.folder / "a", 10 * MIB)
    with fs.open("in/a", block_size=MIB, ahead=0) as file:
        file.read(10)
        os.truncate(served.folder / "a", MIB)
        file.seek(9 * MIB)
        with pytest.raises(errors.SourceChangedError) as changed:
            file.read(10)
    assert changed.value.retryable
    content(served.folder / "b", 10 * MIB)
    with fs.open("in/b", block_size=MIB, ahead=0) as file:
        file.read(10)
        (served.folder / "new").write_bytes(bytes(10 * MIB))
        os.replace(served.folder / "new", served.folder / "b")
        file.seek(9 * MIB)
        with pytest.raises(errors.SourceChangedError, match="replaced"):
            file.read(10)


def test_a_file_that_grows_has_no_gaps(fs, served):
    log, read = served.folder / "log", threading.Event()

    def write():
        with open(log, "wb", buffering=0) as file:
            for first in range(0, 4 * MIB, 8_192):
                file.write(b"".join(number.to_bytes(8, "big") for number in range(first, first + 8_192)))
                if read.is_set():
                    return

    log.touch()
    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(5):
            try:
                found = fs.cat_file("in/log", 0, 64 * MIB)
            except errors.SourceChangedError:
                continue
            assert int.from_bytes(found[-8:], "big") == max(len(found) // 8 - 1, 0)
    finally:
        read.set()
        writer.join()
    found = fs.cat_file("in/log", 0, 64 * MIB)
    assert len(found) == log.stat().st_size and int.from_bytes(found[-8:], "big") == len(found) // 8 - 1


def test_a_server_that_is_silent_holds_up_nobody_else(served):
    content(served.folder / "a", 10)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        away = FarhaulFileSystem("127.0.0.1", port, trust_any=True, udp_timeout="3s", skip_instance_cache=True)
        near = FarhaulFileSystem("127.0.0.1", served.server.port, trust_any=True, skip_instance_cache=True)
        failed = []

        def try_all():
            for error in away.cat_ranges(["in/a"] * 60, [0] * 60, [1] * 60, on_error="return"):
                failed.append(type(error))

        began = time.monotonic()
        trying = threading.Thread(target=try_all)
        trying.start()
        assert near.size("in/a") == 10
        there = time.monotonic() - began
        trying.join()
        took = time.monotonic() - began
        near.close()
    assert failed == [errors.UdpBlockedError] * 60
    assert there < took < 20


def test_rights_that_are_taken_away_are_gone(tmp_path):
    elsewhere = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path / "elsewhere")}
    made = subprocess.run([os.environ["FARHAUL"], "key", "gen"], env=elsewhere, capture_output=True, text=True, check=True)
    (somebody_else,) = re.findall(r"fh-pub\w+", made.stdout + made.stderr)
    config, folder = tmp_path / "serve.toml", tmp_path / "other"
    content(folder / "a", 10)

    def let(who):
        config.write_text(f'[[share]]\nname = "in"\npath = "{folder}"\nallow = ["{who}"]\n')

    let("any")
    words = ["serve", "--config", str(config), "--listen", "127.0.0.1:0", "--control", "off", "--log-format", "json"]
    with subprocess.Popen([os.environ["FARHAUL"], *words], stderr=subprocess.PIPE, text=True) as server:
        try:
            port = next(int(found[1]) for line in server.stderr if (found := re.search(r"127\.0\.0\.1:(\d+)", line)))
            fs = FarhaulFileSystem("127.0.0.1", port, trust_any=True, skip_instance_cache=True)
            assert fs.cat("in/a")
            let(somebody_else)
            server.send_signal(signal.SIGHUP)
            next(line for line in server.stderr if "reload" in line)
            with pytest.raises(PermissionError):
                fs.cat("in/a")
            let("any")
            server.send_signal(signal.SIGHUP)
            next(line for line in server.stderr if "reload" in line)
            assert fs.cat("in/a")
            began = time.monotonic()
            server.send_signal(signal.SIGTERM)
            server.wait(25)
            # No session that only might read holds it up.
            assert time.monotonic() - began < 20
        finally:
            server.kill()


def test_a_server_that_goes_is_an_error_and_one_that_is_back_is_asked(tmp_path):
    folder = tmp_path / "share"
    whole = content(folder / "a", 3 * MIB)
    server = farhaul.serve({"in": folder}, allow="any", listen="127.0.0.1:0")
    fs = FarhaulFileSystem("127.0.0.1", server.port, trust_any=True, udp_timeout="2s", skip_instance_cache=True)
    file = fs.open("in/a", block_size=MIB, ahead=0)
    assert file.read(5) == whole[:5]
    server.stop()
    with pytest.raises(errors.Error) as gone:
        file.seek(2 * MIB)
        file.read(5)
    assert isinstance(gone.value, (errors.UdpBlockedError, errors.ConnectionLostError, errors.BusyError))
    assert gone.value.fix
    with farhaul.serve({"in": folder}, allow="any", listen=f"127.0.0.1:{fs.port}"):
        file.seek(2 * MIB)
        assert file.read(5) == whole[2 * MIB :][:5]
        fs.close()


def test_what_is_cancelled_is_given_up(served):
    content(served.folder / "large", 30 * MIB)
    with relay(served.server.port, "--rtt", "50ms", "--rate", "20Mbit") as port:
        fs = FarhaulFileSystem("127.0.0.1", port, trust_any=True, asynchronous=True, skip_instance_cache=True)

        async def given_up():
            await fs._info("in/large")
            reading = asyncio.create_task(fs._cat_file("in/large"))
            await asyncio.sleep(0.2)
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            # 30 MiB before it would take 12 s.
            return await asyncio.wait_for(fs._cat_file("in/large", 0, 10), 8)

        assert len(asyncio.run(given_up())) == 10
        fs.close()


def test_no_thread_stays_and_an_idle_session_is_closed(fs, served, monkeypatch):
    content(served.folder / "a", 10)
    monkeypatch.setattr(_reading, "_IDLE", 1.0)
    before = set(threading.enumerate())

    def reading():
        return [thread for thread in set(threading.enumerate()) - before if thread.name == "farhaul-reads"]

    fs.cat("in/a")
    assert len(reading()) == 1
    until = time.monotonic() + 20
    while reading() and time.monotonic() < until:
        time.sleep(0.05)
    assert reading() == []
    assert fs.cat("in/a") == (served.folder / "a").read_bytes()
    fs.close()
    for thread in reading():
        thread.join(10)
    assert reading() == []


@pytest.mark.parametrize("end", ["pass", "os._exit(0)", "fork()"])
def test_the_interpreter_ends_with_a_file_open(served, end):
    content(served.folder / "a", 5 * MIB)
    program = textwrap.dedent(
        f"""
        import os
        from farhaul.fs import FarhaulFileSystem
        from farhaul import errors

        def fork():
            if (child := os.fork()) == 0:
                try:
                    fs.cat("in/a")
                except (errors.UsageError, RuntimeError) as e:
                    os._exit(7 if "fork" in str(e) else 1)
                os._exit(2)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7

        fs = FarhaulFileSystem("127.0.0.1", {served.server.port}, trust_any=True)
        file = fs.open("in/a")
        assert len(file.read(10)) == 10
        {end}
        """
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
