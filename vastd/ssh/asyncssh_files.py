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
from vastd.ssh.port import Upload

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

    async def upload(self, order: Upload, progress: Callable[[int], None]) -> None:
        with _LocalFile(order.source, "rb") as file, self._errors(f"writing {order.target!r}"):
            await self._cross(self._aio_upload(file, order, progress))

    async def _aio_upload(
        self, file: _LocalFile, order: Upload, progress: Callable[[int], None]
    ) -> None:
        """Do all of it in one go: small files cost as few turns of the loop as possible."""
        offset, mode = order.offset, "r+b" if order.offset else "wb"
        file.seek(offset)
        async with self._client.open(order.partial, mode, encoding=None) as remote:
            if offset:
                await remote.truncate(offset)
            while chunk := file.read(_CHUNK_BYTES):
                await remote.write(chunk, offset)
                offset += len(chunk)
                progress(len(chunk))
            when = int(order.mtime)
            await remote.setstat(asyncssh.SFTPAttrs(permissions=order.mode, atime=when, mtime=when))
        await self._client.posix_rename(order.partial, order.target)

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
