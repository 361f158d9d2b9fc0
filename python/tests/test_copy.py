"""Do copies, servers and measurements work, and does nothing stay when they are ended?"""

import asyncio
import os
import threading
import time

import pytest

import farhaul
from farhaul import aio, errors


def threads_here():
    """How many threads this process has, native ones included."""
    return len(os.listdir("/proc/self/task"))


def content(folder, name, size):
    file = folder / name
    file.write_bytes(os.urandom(size))
    return file


def test_a_file_arrives_and_comes_back(served, tmp_path):
    there = content(tmp_path, "a.bin", 3_000_000)
    events = []
    report = farhaul.copy(there, served.place(), trust_any=True, progress=events.append)
    assert report.ok and report["files"]["sent"] == 1
    assert report.exit.name == "ok"
    assert (served.folder / "a.bin").read_bytes() == there.read_bytes()
    kinds = {event["type"] for event in events}
    assert {"start", "progress", "file"} <= kinds
    back = tmp_path / "back"
    back.mkdir()
    farhaul.copy(served.place("a.bin"), back, trust_any=True)
    assert (back / "a.bin").read_bytes() == there.read_bytes()


def test_flags_are_those_of_the_command(served, tmp_path):
    source = tmp_path / "tree"
    source.mkdir()
    for name in ("a.txt", "b.log", "c.log"):
        content(source, name, 100)
    farhaul.copy(f"{source}/", served.place(), trust_any=True, exclude=["*.log"], max_rate="1Gbit")
    assert os.listdir(served.folder) == ["a.txt"]
    listed = farhaul.ls(served.place(), trust_any=True)
    assert "a.txt" in str(listed)


def test_an_unknown_server_is_refused_and_a_trusted_one_is_not(served, tmp_path):
    there = content(tmp_path, "a", 10)
    with pytest.raises(errors.AuthError) as raised:
        farhaul.copy(there, served.place())
    assert served.server.key in raised.value.text
    assert "key trust" in raised.value.fix


def test_a_copy_that_is_cancelled_can_be_continued(served, tmp_path):
    there = content(tmp_path, "big", 40_000_000)
    before = threads_here()
    cancel = farhaul.Cancel()

    def end(event):
        if event["type"] == "progress" and event["bytes_done"] > 1_000_000:
            cancel.cancel()

    with pytest.raises(errors.Interrupted) as raised:
        farhaul.copy(there, served.place(), trust_any=True, max_rate="80Mbit", progress=end, cancel=cancel)
    assert raised.value.retryable
    assert wait_for(lambda: threads_here() <= before)
    report = farhaul.copy(there, served.place(), trust_any=True)
    assert report["resumed_bytes"] > 0
    assert (served.folder / "big").read_bytes() == there.read_bytes()


def wait_for(condition, seconds=10):
    until = time.monotonic() + seconds
    waited = threading.Event()
    while not condition():
        if time.monotonic() > until:
            return False
        waited.wait(0.05)
    return True


def test_what_progress_raises_ends_the_copy(served, tmp_path):
    there = content(tmp_path, "big", 40_000_000)

    def refuse(event):
        if event["type"] == "progress":
            raise LookupError("enough")

    with pytest.raises(LookupError):
        farhaul.copy(there, served.place(), trust_any=True, max_rate="80Mbit", progress=refuse)


def test_a_copy_is_cancelled_while_ssh_waits(tmp_path):
    ssh = tmp_path / "ssh"
    ssh.write_text("#!/bin/sh\ntouch $0.started\nexec sleep 1000\n")
    ssh.chmod(0o755)
    (tmp_path / "f").write_text("content")
    cancel = farhaul.Cancel()

    def end():
        while not (tmp_path / "ssh.started").exists():
            time.sleep(0.01)
        cancel.cancel()

    ends = threading.Thread(target=end)
    ends.start()
    with pytest.raises(errors.Interrupted):
        farhaul.copy(tmp_path / "f", "nowhere:there", ssh=str(ssh), cancel=cancel)
    ends.join()


def test_cancelling_a_task_ends_its_copy(served, tmp_path):
    there = content(tmp_path, "big", 40_000_000)
    seen = []

    async def main():
        moving = asyncio.Event()

        def progress(event):
            seen.append(threading.current_thread() is threading.main_thread())
            if event["type"] == "progress":
                moving.set()

        copy = aio.copy(there, served.place(), trust_any=True, max_rate="80Mbit", progress=progress)
        task = asyncio.create_task(copy)
        await moving.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        small = content(tmp_path, "small", 1_000)
        both = await asyncio.gather(
            aio.copy(small, served.place("x"), trust_any=True),
            aio.simulate(
                farhaul.Scenario(farhaul.Path(rate="10Mbit", rtt="10ms"), farhaul.Flow(), duration="1s")
            ),
        )
        return both[0]

    assert asyncio.run(main()).ok
    assert seen and all(seen)
    names = [thread.name for thread in threading.enumerate()]
    assert "farhaul-aio" not in names


def test_failures_of_tasks_are_raised():
    with pytest.raises(errors.SourceMissingError):
        asyncio.run(aio.copy("/nonexistent", "127.0.0.1:1::x/"))


def test_bench_measures_and_tells():
    with farhaul.bench_server(listen="127.0.0.1:0") as server:
        events = []
        report = farhaul.bench(server.address, time="1", interval="0.2", progress=events.append)
    assert report.goodput_bits_per_second > 1e6
    assert "goodput_bits_per_second=" in repr(report) and "<td>intervals</td>" in report._repr_html_()
    assert report.plot().startswith("<svg")
    assert [e["type"] for e in events][0] == "connected"
    assert sum(e["type"] == "interval" for e in events) >= 3


def test_doctor_reports(served):
    report = farhaul.doctor(disk=None)
    assert report.schema == "farhaul.doctor/1"
    assert report["findings"]


def test_a_server_stops_once_and_frees_its_port(tmp_path):
    before = threads_here()
    server = farhaul.serve({"x": tmp_path}, allow="any", listen="127.0.0.1:0")
    address = server.address
    server.stop()
    server.stop()
    assert wait_for(lambda: threads_here() <= before)
    farhaul.serve({"x": tmp_path}, allow="any", listen=address).stop()


def test_a_port_in_use_is_an_error(served, tmp_path):
    with pytest.raises(errors.NetSetupError) as raised:
        farhaul.serve({"x": tmp_path}, listen=served.server.address, allow="any")
    assert "--listen" in raised.value.text


def test_what_is_configured_does_not_hold_where_it_is_false(served, tmp_path, own_home):
    (own_home / "farhaul").mkdir(exist_ok=True)
    (own_home / "farhaul/config.toml").write_text("[cp]\ndelete = true\n")
    (tmp_path / "src").mkdir()
    (tmp_path / "src/a").write_text("a")
    (served.folder / "src").mkdir()
    (served.folder / "src/precious").write_text("precious")
    farhaul.copy(tmp_path / "src", served.place(), trust_any=True, delete=False)
    assert sorted(os.listdir(served.folder / "src")) == ["a", "precious"]
    farhaul.copy(tmp_path / "src", served.place(), trust_any=True)
    assert os.listdir(served.folder / "src") == ["a"]
    with pytest.raises(TypeError, match="delte"):
        farhaul.copy(tmp_path / "src", served.place(), delte=False)
