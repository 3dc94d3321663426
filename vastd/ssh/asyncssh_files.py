"""Files on a machine over SFTP, one connection's worth, in the asyncssh library.

Coroutines named `_aio_…` run inside asyncssh's loop; local files are read and written in
between, in chunks small enough not to hold up the daemon.
"""

from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import asyncssh

from vastd.errors import TransferFailed

_CHUNK_BYTES: Final = 1024 * 1024  # guess: a few dozen packets in flight; bounds memory per copy


class _LocalFile:
    """A local file whose errors say that the local side failed, not the way."""

    def __init__(self, path: Path, mode: str) -> None:
        self._path = path
        try:
            self._file = path.open(mode)
        except OSError as exc:
            raise self._failed(exc) from exc

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._file.close()  # flushes: the last place where a full disk shows
        except OSError as exc:
            if error is None:
                raise self._failed(exc) from exc

    def seek(self, offset: int) -> None:
        self._file.seek(offset)

    def read(self, limit: int) -> bytes:
        try:
            data: bytes = self._file.read(limit)
        except OSError as exc:
            raise self._failed(exc) from exc
        return data

    def write(self, data: bytes) -> None:
        try:
            self._file.write(data)
        except OSError as exc:
            raise self._failed(exc) from exc

    def _failed(self, exc: OSError) -> TransferFailed:
        return TransferFailed(
            f"the local file {str(self._path)!r} could not be used: {exc.strerror}",
            hint="free space or fix the permissions, then repeat: the copy goes on where it was",
        )


class AsyncsshFiles:
    def __init__(
        self,
        cross: Callable[[Coroutine[None, None, Any]], Awaitable[Any]],
        client: asyncssh.SFTPClient,
        errors: Callable[[str], AbstractContextManager[None]],
    ) -> None:
        """`cross` runs a coroutine in asyncssh's loop; `errors` translates what it raises."""
        self._cross = cross
        self._client = client
        self._errors = errors

    async def size(self, path: bytes) -> int | None:
        with self._errors(f"looking at {path!r}"):
            try:
                attributes = await self._cross(self._client.lstat(path))
            except (asyncssh.SFTPNoSuchFile, asyncssh.SFTPNoSuchPath):
                return None
        if attributes.type != asyncssh.FILEXFER_TYPE_REGULAR:
            return None
        return int(attributes.size or 0)

    async def make_dirs(self, path: bytes) -> None:
        with self._errors(f"making the directory {path!r}"):
            await self._cross(self._client.makedirs(path, exist_ok=True))

    async def upload(
        self, source: Path, target: bytes, offset: int, progress: Callable[[int], None]
    ) -> None:
        with _LocalFile(source, "rb") as file, self._errors(f"writing {target!r}"):
            await self._cross(self._aio_upload(file, target, offset, progress))

    async def _aio_upload(
        self, file: _LocalFile, target: bytes, offset: int, progress: Callable[[int], None]
    ) -> None:
        file.seek(offset)
        async with self._client.open(target, "r+b" if offset else "wb", encoding=None) as remote:
            if offset:
                await remote.truncate(offset)
            while chunk := file.read(_CHUNK_BYTES):
                await remote.write(chunk, offset)
                offset += len(chunk)
                progress(len(chunk))

    async def set_attributes(self, path: bytes, mode: int, mtime: float) -> None:
        attributes = asyncssh.SFTPAttrs(permissions=mode, atime=int(mtime), mtime=int(mtime))
        with self._errors(f"setting the mode of {path!r}"):
            await self._cross(self._client.setstat(path, attributes))

    async def rename(self, old: bytes, new: bytes) -> None:
        with self._errors(f"renaming {old!r}"):
            await self._cross(self._client.posix_rename(old, new))

    async def download(
        self, source: bytes, target: Path, offset: int, progress: Callable[[int], None]
    ) -> None:
        with _LocalFile(target, "r+b" if offset else "wb") as file:
            file.seek(offset)
            with self._errors(f"reading {source!r}"):
                await self._cross(self._aio_download(source, file, offset, progress))

    async def _aio_download(
        self, source: bytes, file: _LocalFile, offset: int, progress: Callable[[int], None]
    ) -> None:
        async with self._client.open(source, "rb", encoding=None) as remote:
            while chunk := await remote.read(_CHUNK_BYTES, offset):
                assert isinstance(chunk, bytes)  # opened without an encoding
                file.write(chunk)
                offset += len(chunk)
                progress(len(chunk))
