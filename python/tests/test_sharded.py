"""Is a tree that several senders copy complete, and is what is not there said?"""

import asyncio
import os
import signal
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

import farhaul
from farhaul import errors

FILES = 60


@pytest.fixture
def tree(tmp_path):
    root = tmp_path / "tree"
    for number in range(FILES):
        file = root / f"d{number % 5}/f{number}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(os.urandom(2_000 * (number % 7)))
    return root


def same(tree, there):
    def files(root):
        return {str(f.relative_to(root)): f.read_bytes() for f in root.rglob("*") if f.is_file()}

    assert files(tree) == files(there)


def test_threads_send_a_tree_together(served, tree):
    told = []
    verdict = farhaul.copy_sharded(tree, served.place(), shards=3, progress=told.append, trust_any=True)
    assert verdict.ok
    assert sorted(event["index"] for event in told) == [1, 2, 3]
    same(tree, served.folder / "tree")


def test_dask_sends_it_and_a_lost_worker_costs_its_own(served, tree, tmp_path, own_home):
    distributed = pytest.importorskip("distributed")
    # One key for all, as on nodes that share a home.
    farhaul.copy(tree / "d0/f0", served.place(), trust_any=True)
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, local_directory=tmp_path / "dask"
    ) as cluster:
        with distributed.Client(cluster) as client:

            def kill(event):
                if len(told) == 1:
                    os.kill(next(iter(cluster.workers.values())).pid, signal.SIGKILL)
                told.append(event)

            told = []
            farhaul.copy_sharded(
                tree, served.place(), shards=6, executor=client, progress=kill, trust_any=True, max_rate="2Mbit"
            )
    assert sorted(event["index"] for event in told) == [1, 2, 3, 4, 5, 6]
    same(tree, served.folder / "tree")


def test_what_cannot_be_copied_is_raised_with_the_verdict(served, tree):
    (tree / "link").symlink_to("/etc/hostname")
    told = []
    with pytest.raises(errors.PartialError) as partial:
        farhaul.copy_sharded(tree, served.place(), shards=2, trust_any=True, progress=told.append)
    assert partial.value.report["run_again"]
    assert len(told) == 2, "what does not pass is not tried again"
    (tree / "link").unlink()
    assert farhaul.copy_sharded(tree, served.place(), shards=2, trust_any=True).ok


def test_mistakes_are_raised_at_once(served, tree):
    with pytest.raises(errors.UsageError, match="delete"):
        farhaul.copy_sharded(tree, served.place(), shards=2, trust_any=True, delete=True)
    with pytest.raises(errors.SourceMissingError):
        farhaul.copy_sharded(tree / "nothing", served.place(), shards=2, trust_any=True)
    with pytest.raises(errors.UsageError, match="is no executor"):
        farhaul.copy_sharded(tree, served.place(), shards=2, executor=2)
    for shards in (0, 10_001):
        with pytest.raises(errors.UsageError, match="shards"):
            farhaul.copy_sharded(tree, served.place(), shards=shards)


def test_a_cancelled_copy_ends_and_goes_on_when_it_is_called_again(served, tree):
    cancel = farhaul.Cancel()
    ended = []

    def stop(event):
        ended.append(event)
        cancel.cancel()

    with pytest.raises(errors.Interrupted):
        farhaul.copy_sharded(
            tree, served.place(), shards=3, trust_any=True, max_rate="100kbit", progress=stop, cancel=cancel
        )
    assert len(ended) < 3
    asyncio.run(farhaul.aio.copy_sharded(tree, served.place(), shards=3, trust_any=True))
    same(tree, served.folder / "tree")


def test_a_pool_that_breaks_is_said(served, tree):
    def kill(event):
        for pid in list(pool._processes):
            os.kill(pid, signal.SIGKILL)

    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool, pytest.raises(farhaul.ExecutorError):
        farhaul.copy_sharded(tree, served.place(), shards=3, executor=pool, progress=kill, trust_any=True)
