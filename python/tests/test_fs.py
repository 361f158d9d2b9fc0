"""Do shares work as a file system of fsspec, with what is made for one, and what of servers, files and programs that go?"""

import asyncio
import os
import random
import signal
import socket
import subprocess
import sys
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
            running.send_signal(signal.SIGINT)


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


def test_what_is_written_arrives_whole_or_not_at_all(fs, served, tmp_path):
    fs.pipe_file("in/new/sub/a", b"abc")
    assert (served.folder / "new/sub/a").read_bytes() == b"abc"
    with fs.open("in/text", "w") as file:
        file.write("one")
    assert (served.folder / "text").read_text() == "one"
    with pytest.raises(LookupError), fs.open("in/text", "wb") as file:
        file.write(b"two")
        raise LookupError
    assert (served.folder / "text").read_text() == "one"
    with pytest.raises(FileExistsError):
        fs.open("in/text", "xb")
    fs.mkdir("in/folder")
    assert fs.isdir("in/folder")
    with pytest.raises(FileExistsError):
        fs.mkdir("in/folder")
    tree = tmp_path / "tree"
    first, second = content(tree / "x", 100), content(tree / "y/z", MIB)
    fs.put(str(tree), "in/put", recursive=True)
    assert (served.folder / "put/y/z").read_bytes() == second
    fs.get("in/put", str(tmp_path / "got"), recursive=True)
    assert (tmp_path / "got/x").read_bytes() == first
    for refused in (lambda: fs.rm("in/text"), lambda: fs.open("in/text", "ab"), lambda: fs.mv("in/text", "in/t")):
        with pytest.raises(OSError, match="does not offer"):
            refused()
    assert not [name for name in os.listdir(tmp_path) if name.startswith("farhaul-")]


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
    with pytest.raises(errors.UsageError):
        fs.cat("in/../a")
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
    assert isinstance(gone.value, (errors.UdpBlockedError, errors.ConnectionLostError)) and gone.value.fix
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
