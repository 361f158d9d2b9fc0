"""Shares as a file system of fsspec: ``farhaul://host:port/share/path``.

pandas, xarray, zarr and dask read a remote share by such names once this package is installed. Reads of
ranges share one session, many at a time; what is written is delivered as a file when it is complete, as
``farhaul cp`` delivers it: whole and verified, or not at all.

Nothing is deleted and nothing is moved: a server of files offers neither.
"""

from __future__ import annotations

import asyncio
import errno
import io
import os
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, ClassVar

from fsspec.asyn import AsyncFileSystem, sync  # type: ignore[import-untyped]
from fsspec.caching import BaseCache  # type: ignore[import-untyped]
from fsspec.spec import AbstractBufferedFile  # type: ignore[import-untyped]

from . import _farhaul, errors
from .commands import _flags, copy
from ._reading import Ask, Session

#: Bytes of one request.
_PIECE = 4 << 20
#: Bytes read ahead of a reader that goes on from where it was, at most.
_AHEAD = 128 << 20
#: The default port of servers.
_PORT = 17992
#: What a session for reading is given of the flags of a copy.
_OF_LS = ("identity", "trust_any", "ipv4", "ipv6", "udp_timeout", "tcp_port")


class MissingError(errors.SourceMissingError, FileNotFoundError):
    """There is nothing of that name in the share."""


class DeniedError(errors.AuthError, PermissionError):
    """This user may not do that there."""


def _as_of_file(error: errors.Error, name: str = "") -> errors.Error:
    """The same with the name of the file, as what programs expect of a file system."""
    text = f"{name}: {error.text}" if name else error.text
    kind = type(error)
    for broad, own in ((errors.SourceMissingError, MissingError), (errors.AuthError, DeniedError)):
        if isinstance(error, broad):
            kind = own
    return kind(text, error.fix, error.report)


def _split(path: str) -> tuple[str, bytes]:
    """The share and the path in it."""
    share, _, rest = path.partition("/")
    return share, os.fsencode(rest)


class FarhaulFileSystem(AsyncFileSystem):  # type: ignore[misc]
    """What a server shares, as a file system.

    ``host`` and ``port`` are in the name of each file, further arguments are flags of ``farhaul cp``:
    ``identity="key"``, ``trust_any=True``, for writing also ``max_rate="1Gbit"``. A server whose key is
    not known is refused, as it is by ``copy()``.
    """

    protocol: ClassVar[str] = "farhaul"
    root_marker = ""

    def __init__(self, host: str, port: int | str = _PORT, **options: Any) -> None:
        of_fsspec = ("asynchronous", "loop", "batch_size", "use_listings_cache", "listings_expiry_time")
        own = {name: options.pop(name) for name in (*of_fsspec, "skip_instance_cache") if name in options}
        super().__init__(**own)
        self.host, self.port, self._given = host, int(port), options
        self._session: Session | None = None
        self._process = os.getpid()
        self._opening = threading.Lock()

    # Names.

    @property
    def _server(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @classmethod
    def _strip_protocol(cls, path: str | list[str]) -> str | list[str]:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]  # type: ignore[misc]
        path = os.fspath(path)
        if path.startswith("farhaul://"):
            _, _, path = path.removeprefix("farhaul://").partition("/")
        return path.strip("/")

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        if not path.startswith("farhaul://"):
            return {}
        server = path.removeprefix("farhaul://").partition("/")[0]
        host, colon, port = server.rpartition(":")
        if not colon or port.endswith("]"):
            host, port = server, ""
        found: dict[str, Any] = {"host": host.strip("[]")}
        if port:
            found["port"] = int(port)
        return found

    def unstrip_protocol(self, name: str) -> str:
        return f"farhaul://{self._server}/{self._strip_protocol(name)}"

    @property
    def fsid(self) -> str:
        return f"farhaul-{self._server}"

    # Requests.

    def _open_session(self) -> Session:
        with self._opening:
            if self._session is None or self._session.closed or self._process != os.getpid():
                flags = {name: self._given[name] for name in _OF_LS if name in self._given}
                self._session = Session(["ls", *_flags(flags), "--", f"{self._server}::"])
                self._process = os.getpid()
            return self._session

    def _ask_now(self, ask: Ask) -> Future[Any]:
        """Asks, in a session that may have to be opened."""
        while True:
            if (future := self._open_session().ask(ask)) is not None:
                return future

    async def _ask(self, path: str, ask: Ask) -> Any:
        for is_last in (False, True):
            session = self._session
            ready = session is not None and not session.closed and self._process == os.getpid()
            try:
                future = self._ask_now(ask) if ready else await asyncio.to_thread(self._ask_now, ask)
                return await asyncio.wrap_future(future)
            except errors.ConnectionLostError:
                # Reading changes nothing, so it may be asked again, in another session.
                if is_last:
                    raise
            except errors.Error as error:
                raise _as_of_file(error, self.unstrip_protocol(path)) from error

    async def _info(self, path: str, **_: Any) -> dict[str, Any]:
        path = str(self._strip_protocol(path))
        share, rest = _split(path)
        (entry,) = await self._ask(path, lambda reads: reads.stat(share, rest))
        return _info_of(path, entry)

    async def _ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        path = str(self._strip_protocol(path))
        share, rest = _split(path)
        info = await self._info(path)
        if info["type"] == "directory":
            entries = await self._ask(path, lambda reads: reads.list(share, rest))
            parent = f"{path}/" if path else ""
            found = [_info_of(parent + os.fsdecode(entry[0]), entry) for entry in entries]
        else:
            found = [info]
        return found if detail else [one["name"] for one in found]

    async def _range(self, path: str, start: int, end: int) -> bytes:
        """The bytes of a file from ``start`` to before ``end``, or to its end."""
        share, rest = _split(path)

        def ask(at: int) -> Coroutine[Any, Any, bytes]:
            return self._ask(path, lambda reads: reads.read(share, rest, at, min(_PIECE, end - at)))

        if end - start <= _PIECE:
            return await ask(start) if end > start else b""
        return b"".join(await asyncio.gather(*map(ask, range(start, end, _PIECE))))

    async def _cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **_: Any
    ) -> bytes:
        path = str(self._strip_protocol(path))
        start = start or 0
        if start < 0 or end is None or end < 0:
            info = await self._info(path)
            if info["type"] != "file":
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
            size = int(info["size"])
            start = start if start >= 0 else max(0, size + start)
            end = size if end is None else end if end >= 0 else size + end
        return await self._range(path, start, end)

    def _prefetch(self, path: str, start: int, end: int) -> Future[bytes]:
        """The same as a future of any thread."""
        loop = self.loop
        return asyncio.run_coroutine_threadsafe(self._range(path, start, end), loop)

    # Files.

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        cache_options: dict[str, Any] | None = None,
        **given: Any,
    ) -> Any:
        path = str(self._strip_protocol(path))
        if mode == "rb":
            return FarhaulFile(self, path, mode, block_size or _PIECE, cache_options=cache_options, **given)
        if mode == "xb" and self.exists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        if mode not in ("wb", "xb"):
            raise _unsupported(f"mode '{mode}'", "write the file anew, whole")
        return _Written(lambda source: self._deliver(source, path))

    def _deliver(self, source: str, path: str) -> None:
        try:
            copy(source, f"farhaul://{self._server}/{path}", **self._given)
        except errors.Error as error:
            raise _as_of_file(error) from error
        finally:
            self.invalidate_cache()

    async def _put_file(self, lpath: str, rpath: str, **_: Any) -> None:
        rpath = str(self._strip_protocol(rpath))
        if os.path.isdir(lpath):
            await self._makedirs(rpath, exist_ok=True)
        else:
            await asyncio.to_thread(self._deliver, os.fspath(lpath), rpath)

    async def _pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        def write() -> None:
            with self._open(path, "xb" if mode == "create" else "wb") as file:
                file.write(value)

        await asyncio.to_thread(write)

    async def _get_file(self, rpath: str, lpath: Any, **_: Any) -> None:
        if hasattr(lpath, "write"):
            lpath.write(await self._cat_file(rpath))
            return
        rpath = str(self._strip_protocol(rpath))
        if (await self._info(rpath))["type"] == "directory":
            os.makedirs(lpath, exist_ok=True)
            return
        os.makedirs(os.path.dirname(os.path.abspath(lpath)), exist_ok=True)
        try:
            await asyncio.to_thread(copy, f"farhaul://{self._server}/{rpath}", lpath, **self._given)
        except errors.Error as error:
            raise _as_of_file(error) from error

    # Folders.

    async def _mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        path = str(self._strip_protocol(path))
        if await self._exists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        await self._makedirs(path)

    async def _makedirs(self, path: str, exist_ok: bool = False) -> None:
        path = str(self._strip_protocol(path))
        if await self._exists(path):
            if exist_ok:
                return
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)

        def make() -> None:
            with tempfile.TemporaryDirectory() as nothing:
                os.chmod(nothing, 0o777 & ~_umask())
                self._deliver(f"{nothing}/", f"{path}/")

        await asyncio.to_thread(make)

    async def _rm_file(self, path: str, **_: Any) -> None:
        raise _unsupported(f"to delete {path}", "delete it on the server, or mirror its folder: copy(..., delete=True)")

    async def _rmdir(self, path: str) -> None:
        await self._rm_file(path)

    async def _cp_file(self, path1: str, path2: str, **_: Any) -> None:
        raise _unsupported("to copy within a server", "read it and write it, or copy it there")

    def close(self) -> None:
        """Ends the session, if there is one; a further request opens another."""
        session, self._session = self._session, None
        if session is not None and self._process == os.getpid():
            session.close()


def _unsupported(what: str, instead: str) -> OSError:
    return OSError(errno.ENOTSUP, f"a server of files does not offer {what}: {instead}")


def _umask() -> int:
    mask = os.umask(0o77)
    os.umask(mask)
    return mask


def _info_of(path: str, entry: tuple[Any, ...]) -> dict[str, Any]:
    _, kind, size, mode, seconds, nanoseconds, target = entry
    info = {
        "name": path,
        "size": size if kind == "file" else None if kind == "link" else 0,
        "type": kind,
        "mode": mode,
        "mtime": seconds + nanoseconds / 1e9,
        "islink": kind == "link",
    }
    if kind == "link":
        info["destination"] = os.fsdecode(target)
    return info


class _ReadAhead(BaseCache):  # type: ignore[misc]
    """Pieces of a file: those around where it is read, and further ones of a reader that goes on and on."""

    name = "farhaul"

    def __init__(
        self, blocksize: int, size: int, fetch: Callable[[int, int], Future[bytes]], ahead: int
    ) -> None:
        super().__init__(blocksize, None, size)
        self._start = fetch
        self._most = max(1, ahead // blocksize)
        self._pieces: OrderedDict[int, Future[bytes]] = OrderedDict()
        self._window = 0
        self._next = 0

    def _piece(self, index: int) -> Future[bytes]:
        piece = self._pieces.get(index)
        if piece is None or piece.done() and (piece.cancelled() or piece.exception() is not None):
            at = index * self.blocksize
            piece = self._pieces[index] = self._start(at, min(at + self.blocksize, self.size))
        self._pieces.move_to_end(index)
        return piece

    def _fetch(self, start: int | None, stop: int | None) -> bytes:
        start, stop = start or 0, self.size if stop is None else min(stop, self.size)
        if start >= stop:
            return b""
        first, last = start // self.blocksize, (stop - 1) // self.blocksize
        in_order = first in (self._next, self._next - 1)
        self._window = min(max(2 * self._window, 2), self._most) if in_order else 0
        self._next = last + 1
        wanted = [self._piece(index) for index in range(first, last + 1)]
        end = -(-self.size // self.blocksize)
        for index in range(last + 1, min(last + 1 + self._window, end)):
            self._piece(index)
        while len(self._pieces) > max(self._most, self._window + len(wanted)) + 2:
            self._pieces.popitem(last=False)[1].cancel()
        parts = [piece.result() for piece in wanted]
        parts[-1] = parts[-1][: stop - last * self.blocksize]
        parts[0] = parts[0][start - first * self.blocksize :]
        whole = parts[0] if len(parts) == 1 else b"".join(parts)
        if len(whole) < stop - start:
            text = "the file is shorter than it was when it was opened"
            raise errors.SourceChangedError(text, "open it again")
        return whole

    def cancel(self) -> None:
        for piece in self._pieces.values():
            piece.cancel()
        self._pieces.clear()


class FarhaulFile(AbstractBufferedFile):  # type: ignore[misc]
    """A file that is read; further pieces are requested before they are read, if it is read in order."""

    def __init__(
        self,
        fs: FarhaulFileSystem,
        path: str,
        mode: str,
        block_size: int,
        cache_type: str | None = None,
        cache_options: dict[str, Any] | None = None,
        ahead: int = _AHEAD,
        **given: Any,
    ) -> None:
        super().__init__(
            fs, path, mode, block_size, cache_type=cache_type or "none", cache_options=cache_options, **given
        )
        if self.details["type"] != "file":
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if cache_type is None:
            self.cache = _ReadAhead(self.blocksize, self.size, self._begin, ahead)

    def _begin(self, start: int, end: int) -> Future[bytes]:
        found: Future[bytes] = self.fs._prefetch(self.path, start, end)
        return found

    def _fetch_range(self, start: int, end: int) -> bytes:
        found: bytes = sync(self.fs.loop, self.fs._range, self.path, start, min(end, self.size))
        return found

    def close(self) -> None:
        if isinstance(getattr(self, "cache", None), _ReadAhead):
            self.cache.cancel()
        super().close()


class _Written(io.BufferedRandom):
    """A file that is collected here, and delivered when it is closed; not if an exception ends its ``with``."""

    def __init__(self, deliver: Callable[[str], None]) -> None:
        descriptor, self._path = tempfile.mkstemp(prefix="farhaul-")
        self._deliver = deliver
        os.fchmod(descriptor, 0o666 & ~_umask())
        super().__init__(io.FileIO(descriptor, "w+b"))

    def close(self) -> None:
        self._end(is_whole=True)

    def __exit__(self, kind: object, *_: object) -> None:
        self._end(is_whole=kind is None)

    def __del__(self) -> None:
        self._end(is_whole=False)

    def _end(self, *, is_whole: bool) -> None:
        if self.closed:
            return
        try:
            super().close()
            if is_whole:
                self._deliver(self._path)
        finally:
            os.unlink(self._path)
