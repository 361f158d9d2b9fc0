"""Shares as a file system of fsspec: ``farhaul://host:port/share/path``.

pandas, xarray, zarr and dask read a remote share by such names once this package is installed. Reads of
ranges share one session, many at a time; what is written is delivered as a file when it is complete, as
``farhaul cp`` delivers it: whole and verified, or not at all.

Removals and moves need a share that is served as ``rw,delete``; folders and copies within a share need ``rw``.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import errno
import io
import os
import sys
import tempfile
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from glob import has_magic
from typing import Any, ClassVar

from fsspec.asyn import AsyncFileSystem, _run_coros_in_chunks, sync, sync_wrapper  # type: ignore[import-untyped]
from fsspec.caching import BaseCache  # type: ignore[import-untyped]
from fsspec.callbacks import DEFAULT_CALLBACK, Callback  # type: ignore[import-untyped]
from fsspec.spec import AbstractBufferedFile  # type: ignore[import-untyped]

from . import _farhaul, errors
from .commands import _check, _command, copy
from ._reading import Ask, Session

#: Bytes of one request.
_PIECE = 4 << 20
#: Bytes read ahead of a reader that goes on from where it was, at most.
_AHEAD = 128 << 20
#: The default port of servers.
_PORT = 17992
#: What a session for reading is given of the flags of a copy.
_OF_LS = ("identity", "trust_any", "ipv4", "ipv6", "udp_timeout", "tcp_port")
#: How a session ends that may be opened again: it was lost, or its server stops.
_LOST = (errors.ConnectionLostError, errors.BusyError)


class MissingError(errors.SourceMissingError, FileNotFoundError):
    """There is nothing of that name in the share."""


class DeniedError(errors.AuthError, PermissionError):
    """This user may not do that there."""


class InvalidNameError(errors.UsageError, FileNotFoundError):
    """Nothing in a share can have that name."""


class UnreadableError(errors.PartialError, OSError):
    """It is there, and cannot be read: a link, or something behind one."""


class UnwritableError(errors.DestError, OSError):
    """It cannot be written, made, removed or moved there."""


class InUseError(errors.LockedError, OSError):
    """A copy delivers there now."""


_OF_FILES = (
    (errors.SourceMissingError, MissingError),
    (errors.AuthError, DeniedError),
    (errors.UsageError, InvalidNameError),
    (errors.PartialError, UnreadableError),
    (errors.DestError, UnwritableError),
    (errors.LockedError, InUseError),
)


def _as_of_file(error: errors.Error, name: str) -> errors.Error:
    """The same with the name of the file, as what programs expect of a file system."""
    kind = next((own for broad, own in _OF_FILES if isinstance(error, broad)), type(error))
    return kind(f"{name}: {error.text}", error.fix, error.report)


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
        _check("cp", options)
        super().__init__(**own)
        self.host, self.port, self._given = host, int(port), options
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._opening: Future[Session] | None = None

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

    def _session(self) -> Future[Session]:
        """The session, which may have to be opened: once for all who wait for it."""
        if self._process != os.getpid():
            # Who holds the lock is not here, nor is the session.
            self._process, self._lock, self._opening = os.getpid(), threading.Lock(), None
        with self._lock:
            opening = self._opening
            if opening is None or opening.done() and (opening.exception() or opening.result().closed):
                opening = self._opening = Future()
                threading.Thread(target=self._open_session, args=(opening,), name="farhaul-open", daemon=True).start()
            return opening

    def _open_session(self, opening: Future[Session]) -> None:
        flags = {name: self._given[name] for name in _OF_LS if name in self._given}
        try:
            opening.set_result(Session(_command("ls", flags, [f"{self._server}::"])))
        except errors.AuthError as error:
            opening.set_exception(DeniedError(error.text, error.fix, error.report))
        except BaseException as error:
            opening.set_exception(error)

    async def _ask(self, path: str, ask: Ask, changes: bool = False) -> Any:
        for is_last in (False, True):
            session = await asyncio.shield(asyncio.wrap_future(self._session()))
            try:
                if (future := session.ask(ask)) is not None:
                    return await asyncio.wrap_future(future)
            except _LOST:
                # Reading changes nothing, so it may be asked again, in another session. Whether a change was made is not known.
                if is_last or changes:
                    raise
            except errors.Error as error:
                raise _as_of_file(error, self.unstrip_protocol(path)) from error
        raise errors.ConnectionLostError("the session was closed", "ask again")

    def _asked(self, ask: Ask) -> Future[Any]:
        """The same for any thread, without the loop, and without another try."""
        while True:
            if (future := self._session().result().ask(ask)) is not None:
                return future

    def _answer(self, path: str, future: Future[Any], ask: Ask) -> Any:
        """What came of it, after another try if its session was lost."""
        try:
            try:
                return future.result()
            except _LOST:
                return self._asked(ask).result()
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

    async def _range(self, path: str, start: int, end: int, callback: Callback = DEFAULT_CALLBACK) -> bytes:
        """The bytes of a file from ``start`` to before ``end``, or to its end."""
        share, rest = _split(path)

        async def ask(at: int) -> tuple[bytes, int]:
            found: tuple[bytes, int] = await self._ask(
                path, lambda reads: reads.read(share, rest, at, min(_PIECE, end - at))
            )
            callback.relative_update(len(found[0]))
            return found

        pieces = [asyncio.ensure_future(ask(at)) for at in range(start, end, _PIECE)]
        try:
            found = await asyncio.gather(*pieces)
        except BaseException:
            for piece in pieces:
                piece.cancel()
            raise
        if len({version for _, version in found}) > 1:
            raise self._changed(path)
        return found[0][0] if len(found) == 1 else b"".join(content for content, _ in found)

    def _changed(self, path: str) -> errors.Error:
        text = f"{self.unstrip_protocol(path)}: it was changed or replaced while it was read"
        return errors.SourceChangedError(text, "open it again")

    async def _cat_file(
        self,
        path: str,
        start: int | None = None,
        end: int | None = None,
        callback: Callback = DEFAULT_CALLBACK,
        **_: Any,
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
            callback.set_size(max(0, end - start))
        return await self._range(path, start, end, callback)

    # Files.

    def open(self, path: str, mode: str = "rb", *given: Any, compression: str | None = None, **named: Any) -> Any:
        """A file; see :meth:`fsspec.AbstractFileSystem.open`."""
        if compression is not None and "r" not in mode:
            # Its file would never be closed.
            text = "compressed files are written by fsspec.open(url, mode, compression=...)"
            raise ValueError(text)
        return super().open(path, mode, *given, compression=compression, **named)

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: dict[str, Any] | None = None,
        **given: Any,
    ) -> Any:
        path = str(self._strip_protocol(path))
        if mode == "rb":
            return FarhaulFile(self, path, mode, block_size or _PIECE, cache_options=cache_options, **given)
        if mode not in ("wb", "xb"):
            raise _unsupported(f"mode '{mode}'", "write the file anew, whole")
        if self._may_be_file(path) and mode == "xb":
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        return _Written(lambda source: self._deliver(source, path, is_new=mode == "xb"), autocommit)

    def _may_be_file(self, path: str) -> bool:
        """True if there is a file; raises if it is a folder, in which a copy would put a file of another name."""
        share, rest = _split(path)
        try:
            found = self._asked(lambda reads: reads.stat(share, rest)).result()
            is_there, is_folder = True, found[0][1] == "directory"
        except errors.Error:
            # There is none, or it cannot be read: then the delivery says what is wrong.
            is_there, is_folder = False, rest == b""
        if is_folder:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return is_there

    def _deliver(
        self, source: str, path: str, is_new: bool = False, callback: Callback = DEFAULT_CALLBACK
    ) -> None:
        flags = {**self._given, "ignore_existing": True} if is_new else self._given
        try:
            report = copy(source, f"farhaul://{self._server}/{path}", progress=_tells(callback), **flags)
        except errors.Error as error:
            raise _as_of_file(error, self.unstrip_protocol(path)) from error
        finally:
            self.invalidate_cache()
        if is_new and report["files"]["skipped"]:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)

    async def _put_file(
        self,
        lpath: str,
        rpath: str,
        callback: Callback = DEFAULT_CALLBACK,
        mode: str = "overwrite",
        **_: Any,
    ) -> None:
        rpath = str(self._strip_protocol(rpath))
        if os.path.isdir(lpath):
            await self._makedirs(rpath, exist_ok=True)
            return

        def put() -> None:
            self._may_be_file(rpath)
            callback.set_size(os.path.getsize(lpath))
            self._deliver(os.path.abspath(lpath), rpath, mode == "create", callback)

        await asyncio.to_thread(put)

    async def _pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        def write() -> None:
            commits = not self._intrans
            with self._open(path, "xb" if mode == "create" else "wb", autocommit=commits) as file:
                file.write(value)
            if not commits:
                self.transaction.files.append(file)

        await asyncio.to_thread(write)

    async def _get_file(self, rpath: str, lpath: Any, callback: Callback = DEFAULT_CALLBACK, **_: Any) -> None:
        if hasattr(lpath, "write"):
            lpath.write(await self._cat_file(rpath, callback=callback))
            return
        rpath = str(self._strip_protocol(rpath))
        info = await self._info(rpath)
        if info["type"] == "directory":
            os.makedirs(lpath, exist_ok=True)
            return
        callback.set_size(info["size"])
        lpath = os.path.abspath(lpath)
        if os.path.isdir(lpath):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), lpath)
        os.makedirs(os.path.dirname(lpath), exist_ok=True)
        try:
            place = f"farhaul://{self._server}/{rpath}"
            await asyncio.to_thread(copy, place, lpath, progress=_tells(callback), **self._given)
        except errors.Error as error:
            raise _as_of_file(error, self.unstrip_protocol(rpath)) from error

    def modified(self, path: str) -> datetime.datetime:
        """When the content of a file, or the names in a folder, changed last."""
        return datetime.datetime.fromtimestamp(self.info(path)["mtime"], datetime.timezone.utc)

    # Changes.

    async def _change(self, path: str, ask: Ask) -> None:
        try:
            await self._ask(path, ask, changes=True)
        finally:
            self.invalidate_cache()

    async def _mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        path = str(self._strip_protocol(path))
        share, rest = _split(path)
        if create_parents and "/" in (parent := path.rpartition("/")[0]):
            await self._makedirs(parent, exist_ok=True)
        try:
            await self._change(path, lambda reads: reads.make_folder(share, rest, False))
        except (UnwritableError, InvalidNameError):
            if not await self._exists(path):
                raise
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path) from None

    async def _makedirs(self, path: str, exist_ok: bool = False) -> None:
        path = str(self._strip_protocol(path))
        share, rest = _split(path)
        if not exist_ok:
            await self._mkdir(path)
        elif rest:
            await self._change(path, lambda reads: reads.make_folder(share, rest, True))
        else:
            await self._info(path)

    async def _rm_file(self, path: str, **_: Any) -> None:
        path = str(self._strip_protocol(path))
        share, rest = _split(path)
        try:
            await self._change(path, lambda reads: reads.remove(share, rest, False))
        except UnwritableError:
            if not await self._isdir(path):
                raise
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path) from None

    async def _rmdir(self, path: str) -> None:
        path = str(self._strip_protocol(path))
        share, rest = _split(path)
        await self._change(path, lambda reads: reads.remove(share, rest, True))

    # The base class has one that does nothing.
    rmdir = sync_wrapper(_rmdir)

    async def _rm(
        self,
        path: str | list[str],
        recursive: bool = False,
        batch_size: int | None = None,
        maxdepth: int | None = None,
        **_: Any,
    ) -> None:
        paths = await self._expand_path(path, recursive=recursive, maxdepth=maxdepth)
        if any("/" not in one for one in paths):
            # Before anything in it is removed.
            raise _unsupported("to remove a share", "remove what is in it")
        batch = batch_size or self.batch_size
        infos = await _run_coros_in_chunks([self._info(one) for one in paths], batch_size=batch, nofiles=True)
        folders = [one for one, info in zip(paths, infos) if info["type"] == "directory"]
        if folders and not recursive:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), folders[0])
        files = [self._rm_file(one) for one in set(paths).difference(folders)]
        await _run_coros_in_chunks(files, batch_size=batch, nofiles=True)
        # The innermost ones first.
        for depth in sorted({one.count("/") for one in folders}, reverse=True):
            level = [self._rmdir(one) for one in folders if one.count("/") == depth]
            await _run_coros_in_chunks(level, batch_size=batch, nofiles=True)

    async def _cp_file(self, path1: str, path2: str, **_: Any) -> None:
        path1, path2 = str(self._strip_protocol(path1)), str(self._strip_protocol(path2))
        if await self._isdir(path1):
            return await self._makedirs(path2, exist_ok=True)
        (share, rest), (other, to) = _split(path1), _split(path2)
        if share != other:
            with tempfile.TemporaryDirectory(prefix="farhaul-") as between:
                await self._get_file(path1, f"{between}/file")
                await self._put_file(f"{between}/file", path2)
            return
        await self._change(path1, lambda reads: reads.give(share, rest, to, True))

    async def _mv(self, path1: str, path2: str) -> None:
        """Moves a file, or a folder with all that is in it, within its share, into ``path2`` if that is a folder."""
        path1, is_within = str(self._strip_protocol(path1)), path2.endswith("/")
        path2 = str(self._strip_protocol(path2))
        if is_within or path1 != path2 and await self._isdir(path2):
            path2 = f"{path2}/{path1.rpartition('/')[2]}"
        if path1 == path2:
            return
        (share, rest), (other, to) = _split(path1), _split(path2)
        if await self._isdir(path2):
            # In the folder that was named.
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path2)
        is_folder = await self._isdir(path1)
        if share == other and not (is_folder and to.count(b"/") != rest.count(b"/")):
            return await self._change(path1, lambda reads: reads.give(share, rest, to, False))
        # The server moves a folder only to a place as deep, since links in it could lead out of the share from elsewhere.
        await self._copy(path1, path2, recursive=is_folder, on_error="raise")
        await self._rm(path1, recursive=is_folder)

    def mv(
        self,
        path1: str | list[str],
        path2: str | list[str],
        recursive: bool = False,
        maxdepth: int | None = None,
        **given: Any,
    ) -> None:
        """Moves entries; see :meth:`fsspec.AbstractFileSystem.mv`. Within a share one entry is moved by one act."""
        if isinstance(path1, str) and isinstance(path2, str) and maxdepth is None and not has_magic(path1):
            sync(self.loop, self._mv, path1, path2)
        else:
            super().mv(path1, path2, recursive=recursive, maxdepth=maxdepth, **given)

    def close(self) -> None:
        """Ends the session, if there is one; a further request opens another."""
        opening, self._opening = self._opening, None
        if opening is not None and self._process == os.getpid() and opening.exception() is None:
            opening.result().close()


def _unsupported(what: str, instead: str) -> OSError:
    return OSError(errno.ENOTSUP, f"a server of files does not offer {what}: {instead}")


def _tells(callback: Callback) -> Callable[[dict[str, Any]], object] | None:
    """What hands the progress of a copy on to ``callback``, if anybody listens to it."""
    if callback is DEFAULT_CALLBACK:
        return None

    def tell(event: dict[str, Any]) -> None:
        if event["type"] == "progress":
            callback.absolute_update(event["bytes_done"])

    return tell


def _umask() -> int:
    """That of the process, which cannot be asked for without changing it."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1], 8) for line in status if line.startswith("Umask:"))


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

    def __init__(self, file: FarhaulFile, ahead: int) -> None:
        super().__init__(file.blocksize, None, file.size)
        self._file = file
        self._most = max(1, ahead // file.blocksize)
        self._pieces: OrderedDict[int, tuple[Future[Any], Ask]] = OrderedDict()
        self._version: int | None = None
        self._window = 0
        self._next = 0

    def _start(self, index: int) -> tuple[Future[Any], Ask]:
        if (piece := self._pieces.get(index)) is None:
            ask = self._file._asks(index * self.blocksize, min((index + 1) * self.blocksize, self.size))
            piece = self._pieces[index] = self._file.fs._asked(ask), ask
        self._pieces.move_to_end(index)
        return piece

    def _content(self, index: int) -> bytes:
        try:
            content, version = self._file.fs._answer(self._file.path, *self._start(index))
        except BaseException:
            self._pieces.pop(index)
            raise
        if self._version is None:
            self._version = version
        if version != self._version:
            raise self._file.fs._changed(self._file.path)
        found: bytes = content
        return found

    def _fetch(self, start: int | None, stop: int | None) -> bytes:
        start, stop = start or 0, self.size if stop is None else min(stop, self.size)
        if start >= stop:
            return b""
        first, last = start // self.blocksize, (stop - 1) // self.blocksize
        if first not in (self._next, self._next - 1):
            self._window = 0
        elif last >= self._next:
            self._window = min(max(2 * self._window, 1), self._most)
        self._next = last + 1
        end = -(-self.size // self.blocksize)
        for index in range(first, min(last + 1 + self._window, end)):
            self._start(index)
        while len(self._pieces) > last + 1 - first + self._window + 2:
            self._pieces.popitem(last=False)[1][0].cancel()
        parts = [self._content(index) for index in range(first, last + 1)]
        parts[-1] = parts[-1][: stop - last * self.blocksize]
        parts[0] = parts[0][start - first * self.blocksize :]
        whole = parts[0] if len(parts) == 1 else b"".join(parts)
        if len(whole) < stop - start:
            raise self._file.fs._changed(self._file.path)
        return whole

    def cancel(self) -> None:
        for future, _ in self._pieces.values():
            future.cancel()
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
        block_size = min(block_size, _farhaul.MOST_READ)
        super().__init__(
            fs, path, mode, block_size, cache_type=cache_type or "none", cache_options=cache_options, **given
        )
        if self.details["type"] == "link":
            raise UnreadableError(f"{fs.unstrip_protocol(path)}: a link, which is not followed in a share")
        if self.details["type"] != "file":
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if cache_type is None:
            self.cache = _ReadAhead(self, ahead)

    def _asks(self, start: int, end: int) -> Ask:
        share, rest = _split(self.path)
        return lambda reads: reads.read(share, rest, start, end - start)

    def _fetch_range(self, start: int, end: int) -> bytes:
        found: bytes = sync(self.fs.loop, self.fs._range, self.path, start, min(end, self.size))
        return found

    def close(self) -> None:
        if isinstance(getattr(self, "cache", None), _ReadAhead):
            self.cache.cancel()
        super().close()


class _Written(io.BufferedRandom):
    """A file that is collected here, and delivered when it is closed; not if it is closed since an exception was raised."""

    def __init__(self, deliver: Callable[[str], None], autocommit: bool = True) -> None:
        descriptor, self._path = tempfile.mkstemp(prefix="farhaul-")
        self._deliver = deliver
        self._commits = autocommit
        # Whoever opens it may be handling one.
        self._handled = sys.exc_info()[1]
        os.fchmod(descriptor, 0o666 & ~_umask())
        super().__init__(io.FileIO(descriptor, "w+b"))

    def close(self) -> None:
        if self.closed:
            return
        failed = sys.exc_info()[1] not in (None, self._handled)
        try:
            super().close()
        except BaseException:
            self.discard()
            raise
        if failed:
            self.discard()
        elif self._commits:
            self.commit()

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self.discard()
        self.close()

    def __del__(self) -> None:
        if not self.closed:
            warnings.warn(f"{self._path} was never closed, and is not delivered", ResourceWarning, stacklevel=2)
        self.discard()

    def commit(self) -> None:
        """Delivers it, once it is closed."""
        try:
            self._deliver(self._path)
        finally:
            self.discard()

    def discard(self) -> None:
        """It is not delivered."""
        super().close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)
