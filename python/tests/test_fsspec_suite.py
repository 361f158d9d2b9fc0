"""Does a share pass fsspec's own tests of a file system?"""

import os

import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.tests.abstract import (
    AbstractCopyTests,
    AbstractFixtures,
    AbstractGetTests,
    AbstractOpenTests,
    AbstractPipeTests,
    AbstractPutTests,
)

import farhaul
from farhaul.fs import FarhaulFileSystem


@pytest.fixture(scope="module")
def share(tmp_path_factory):
    """The port of a server, and the folder that it shares."""
    folder = tmp_path_factory.mktemp("share")
    flags = {"allow": "any", "listen": "127.0.0.1:0", "no_sync": True}
    with farhaul.serve({"in": f"{folder}:rw,delete"}, **flags) as server:
        yield server.port, folder


class Fixtures(AbstractFixtures):
    """What the tests are given: names in the share, and trees there that are made on the server's side."""

    @pytest.fixture(scope="class")
    @classmethod
    def fs(cls, share):
        port, cls.folder = share
        made = FarhaulFileSystem("127.0.0.1", port, trust_any=True, skip_instance_cache=True)
        yield made
        made.close()

    @pytest.fixture
    def fs_path(self):
        return "in"


def on_the_server(name):
    """The method of that name, which makes a tree, without a session for each of its files."""
    make = getattr(AbstractFixtures, name)

    def made(self, fs, join, path):
        if not isinstance(fs, FarhaulFileSystem):
            return make(self, fs, join, path)
        make(self, LocalFileSystem(auto_mkdir=True), os.path.join, str(self.folder))
        return join(path, "source")

    return made


for name in (
    "_bulk_operations_scenario_0",
    "_dir_and_file_with_same_name_prefix",
    "_glob_edge_cases_files",
    "_10_files_with_hashed_names",
):
    setattr(Fixtures, name, on_the_server(name))


class TestCopy(Fixtures, AbstractCopyTests):
    pass


class TestGet(Fixtures, AbstractGetTests):
    pass


class TestPut(Fixtures, AbstractPutTests):
    pass


class TestOpen(Fixtures, AbstractOpenTests):
    pass


class TestPipe(Fixtures, AbstractPipeTests):
    pass
