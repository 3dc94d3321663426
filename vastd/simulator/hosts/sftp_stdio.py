"""An SFTP server on standard input and output, run *inside* an instance as a program of its own.

Used where the machine has no OpenSSH `sftp-server`. It speaks asyncio because asyncssh's server
does; nothing imports it: its text is put on the instance's disk, so that the sandbox confines it.
"""

import asyncio
import os
import sys
from typing import cast

import asyncssh
from asyncssh.logging import logger
from asyncssh.sftp import run_sftp_server

SFTP_VERSION = 3  # what OpenSSH speaks


class Input:
    """As much of an SSH reader as the SFTP server uses."""

    logger = logger

    def __init__(self, stream: asyncio.StreamReader) -> None:
        self._stream = stream

    async def readexactly(self, count: int) -> bytes:
        return await self._stream.readexactly(count)

    def get_extra_info(self, name: str, default: object = None) -> object:
        return default


class Output:
    """As much of an SSH writer, and of its channel, as the SFTP server uses."""

    logger = logger

    def __init__(self) -> None:
        self.channel = self
        self._closing = False

    def is_closing(self) -> bool:
        return self._closing

    def write(self, data: bytes) -> None:
        # Blocking on purpose: a client that does not read stops the server, not its memory.
        view = memoryview(data)
        while view:
            view = view[os.write(sys.stdout.fileno(), view) :]

    def close(self) -> None:
        self._closing = True


async def main() -> None:
    """Serve one client until it closes our input."""
    stream = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(stream), sys.stdin
    )
    output = Output()
    server = asyncssh.SFTPServer(cast("asyncssh.SSHServerChannel[bytes]", output))
    await run_sftp_server(
        server,
        cast("asyncssh.SSHReader[bytes]", Input(stream)),
        cast("asyncssh.SSHWriter[bytes]", output),
        SFTP_VERSION,
    )


if __name__ == "__main__":
    asyncio.run(main())
