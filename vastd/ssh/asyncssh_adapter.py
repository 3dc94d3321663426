"""The SSH port on asyncssh, hosted by trio-asyncio; the daemon's only module with asyncio.

Rules
1. Import this module when the first machine is dialled, not before: asyncssh costs memory.
2. Coroutines named `_aio_…` run inside the asyncio loop, everything else inside trio; one
   crosses over only through `_loop.run_aio_coroutine`.
3. Exactly one key is offered: no agent, no user configuration, no passwords (CASES 64).
4. A foreign exception becomes one of ours in `asyncssh_errors`, with the machine's name on it.
"""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

import asyncssh
import trio
import trio_asyncio  # type: ignore[import-untyped]  # ships no types

from vastd.errors import (
    SshAuthRejected,
    SshClosed,
    SshRefused,
    SshTimeout,
    TransferFailed,
)
from vastd.jobs.port import Endpoint
from vastd.ssh.asyncssh_errors import caused_by, reason, translated
from vastd.ssh.asyncssh_files import AsyncsshFiles
from vastd.ssh.known_hosts import KnownHosts, host_key_changed
from vastd.ssh.openssh import CONNECT_TIMEOUT_S, KEEPALIVE_COUNT, KEEPALIVE_INTERVAL_S
from vastd.ssh.port import CommandResult, SftpFiles, SshConnection, SshDialer, SshProcess

logger = logging.getLogger(__name__)

_LOGIN_TIMEOUT_S: Final = 15.0  # REQUIREMENTS SSH-06: 30 s per attempt, half of it for TCP
_CLOSE_TIMEOUT_S: Final = 2.0  # guess; a peer that answers at all does so within a second
_MAX_CHANNELS: Final = 8  # OpenSSH's default MaxSessions is 10; two are left for other tools
_FIRST_HOST_KEY_ALGS: Final = [
    # Without host certificates, which we have no authority to check.
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "rsa-sha2-512",
    "rsa-sha2-256",
]
_SIGNALS: Final = {"HUP": 1, "INT": 2, "QUIT": 3, "ABRT": 6, "KILL": 9, "SEGV": 11, "TERM": 15}


@asynccontextmanager
async def open_dialer(
    identity: Path,
    known_hosts: KnownHosts,
    *,
    connect_timeout_s: float = CONNECT_TIMEOUT_S,
    login_timeout_s: float = _LOGIN_TIMEOUT_S,
    keepalive_s: float = KEEPALIVE_INTERVAL_S,
) -> AsyncIterator[SshDialer]:
    """Host the asyncio loop while the context is open; connections must be closed before.

    `keepalive_s` is the interval of probes; after three without answer the peer is lost.
    """
    logging.getLogger("asyncssh").setLevel(logging.WARNING)  # it logs every channel at INFO
    async with trio_asyncio.open_loop() as loop:
        # By default an exception in a stray callback would end the whole daemon.
        loop.set_exception_handler(_log_stray_exception)
        yield _Dialer(loop, identity, known_hosts, connect_timeout_s, login_timeout_s, keepalive_s)


def _log_stray_exception(_loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
    logger.warning("ssh: %s: %r", context.get("message"), context.get("exception"))


class _Dialer:
    def __init__(
        self,
        loop: trio_asyncio.TrioEventLoop,
        identity: Path,
        known_hosts: KnownHosts,
        connect_timeout_s: float,
        login_timeout_s: float,
        keepalive_s: float,
    ) -> None:
        self._loop = loop
        self._identity = identity
        self._known_hosts = known_hosts
        self._connect_timeout_s = connect_timeout_s
        self._login_timeout_s = login_timeout_s
        self._keepalive_s = keepalive_s

    async def connect(self, endpoint: Endpoint, instance_id: int) -> SshConnection:
        where = f"instance {instance_id} at {endpoint.host}:{endpoint.port} ({endpoint.route})"
        peer = await self._open_tcp(endpoint, where)
        witness = _HostKeyWitness(self._known_hosts.known_key(instance_id))
        try:
            with translated(where), trio.fail_after(self._login_timeout_s):
                connection = await self._loop.run_aio_coroutine(
                    self._aio_login(peer, endpoint, witness)
                )
        except trio.TooSlowError as exc:
            raise SshTimeout(
                f"{where} did not finish the login in {self._login_timeout_s} s"
            ) from exc
        except SshClosed as exc:
            if witness.refused_key(exc):
                path = str(self._known_hosts.path(instance_id))
                raise host_key_changed(instance_id, path) from exc
            raise
        except SshAuthRejected:
            # The key exchange before it proved that the peer owns the key it showed.
            self._record(instance_id, witness)
            raise
        self._record(instance_id, witness)
        return _Connection(self._loop, connection, endpoint, where)

    def _record(self, instance_id: int, witness: "_HostKeyWitness") -> None:
        if witness.first_key is not None:
            self._known_hosts.accept(instance_id, witness.first_key)

    async def _open_tcp(self, endpoint: Endpoint, where: str) -> socket.socket:
        """Connect with trio, so that a refusal and a silent peer are told apart exactly."""
        try:
            with trio.fail_after(self._connect_timeout_s):
                stream = await trio.open_tcp_stream(endpoint.host, endpoint.port)
        except trio.TooSlowError as exc:
            raise SshTimeout(f"{where} did not answer in {self._connect_timeout_s} s") from exc
        except OSError as exc:
            if caused_by(exc, TimeoutError):
                raise SshTimeout(f"{where} did not answer: {reason(exc)}") from exc
            raise SshRefused(
                f"{where} refused the connection: {reason(exc)}",
                hint="sshd may start up to a minute after the machine runs; try again",
            ) from exc
        # trio's socket is closed with its stream; asyncio gets a descriptor of its own.
        peer = socket.socket(fileno=os.dup(stream.socket.fileno()))
        peer.setblocking(False)
        await stream.aclose()
        return peer

    async def _aio_login(
        self, peer: socket.socket, endpoint: Endpoint, witness: "_HostKeyWitness"
    ) -> asyncssh.SSHClientConnection:
        known = [witness.known_key] if witness.known_key else []
        algorithms = {} if known else {"server_host_key_algs": _FIRST_HOST_KEY_ALGS}
        return await asyncssh.connect(
            sock=peer,
            config=None,
            username=endpoint.user,
            client_keys=[asyncssh.read_private_key(self._identity)],
            client_factory=lambda: witness,
            # A callable, because an empty list would mean the user's own known_hosts file.
            known_hosts=lambda *_: ([asyncssh.import_public_key(k) for k in known], [], []),
            x509_trusted_certs=None,
            agent_path=None,
            gss_host=None,
            preferred_auth="publickey",
            kbdint_auth=False,
            password_auth=False,
            login_timeout=0,  # trio's deadline above is the only one
            keepalive_interval=self._keepalive_s,
            keepalive_count_max=KEEPALIVE_COUNT,
            **algorithms,
        )


class _HostKeyWitness(asyncssh.SSHClient):
    """Accepts the first host key of an instance and remembers what it saw."""

    def __init__(self, known_key: str | None) -> None:
        self.known_key = known_key
        self.first_key: str | None = None
        self._saw_other_key = False

    def validate_host_public_key(
        self, host: str, addr: str, port: int, key: asyncssh.SSHKey
    ) -> bool:
        # Called only for keys that are not on record; asyncssh then checks possession.
        if self.known_key is None:
            self.first_key = key.export_public_key().decode()
            return True
        self._saw_other_key = True
        return False

    def refused_key(self, error: SshClosed) -> bool:
        """Tell whether the login ended because the recorded key was not shown."""
        no_such_kind = self.known_key is not None and isinstance(
            error.__cause__, asyncssh.KeyExchangeFailed
        )
        return self._saw_other_key or (no_such_kind and "host key" in str(error.__cause__))


class _Connection:
    def __init__(
        self,
        loop: trio_asyncio.TrioEventLoop,
        connection: asyncssh.SSHClientConnection,
        endpoint: Endpoint,
        where: str,
    ) -> None:
        self._loop = loop
        self._connection = connection
        self._endpoint = endpoint
        self._where = where
        self._slots = trio.Semaphore(_MAX_CHANNELS)

    @property
    def endpoint(self) -> Endpoint:
        return self._endpoint

    @property
    def is_open(self) -> bool:
        return not self._connection.is_closed()

    async def run(
        self, command: str, *, stdin: bytes = b"", timeout_s: float, limit_bytes: int
    ) -> CommandResult:
        try:
            with trio.fail_after(timeout_s):
                async with self._slots:
                    with translated(self._where):
                        result: CommandResult = await self._loop.run_aio_coroutine(
                            self._aio_capture(command, stdin, limit_bytes)
                        )
        except trio.TooSlowError as exc:
            raise SshTimeout(f"{self._where}: a command did not end in {timeout_s:g} s") from exc
        return result

    async def _aio_capture(self, command: str, stdin: bytes, limit_bytes: int) -> CommandResult:
        session = _Capture(limit_bytes)
        channel, _ = await self._connection.create_session(lambda: session, command, encoding=None)
        try:
            # A command may end without reading its input; its own result tells the rest.
            with contextlib.suppress(OSError):
                channel.write(stdin)
                channel.write_eof()
            await session.ended.wait()
        finally:
            _end(channel)
        if session.error is not None:
            raise session.error
        if session.exit_code is None:
            raise asyncssh.ConnectionLost("a command ended without an exit code")
        return CommandResult(
            exit_code=session.exit_code,
            stdout=bytes(session.stdout),
            stderr=bytes(session.stderr),
            truncated=session.truncated,
        )

    @asynccontextmanager
    async def open_process(
        self, command: str, *, terminal: bool = False
    ) -> AsyncIterator[SshProcess]:
        async with self._slots:
            with translated(self._where):
                writer, reader, _stderr = await self._loop.run_aio_coroutine(
                    self._connection.open_session(
                        command, encoding=None, term_type="xterm" if terminal else None
                    )
                )
            try:
                yield _Process(self._loop, writer, reader, self._where)
            finally:
                _end(writer.channel)

    @asynccontextmanager
    async def open_sftp(self) -> AsyncIterator[SftpFiles]:
        async with self._slots:
            with self._file_errors("opening the file service (sftp)"):
                client = await self._loop.run_aio_coroutine(self._connection.start_sftp_client())
            try:
                yield AsyncsshFiles(self._loop.run_aio_coroutine, client, self._file_errors)
            finally:
                client.exit()
                with trio.move_on_after(_CLOSE_TIMEOUT_S) as scope:
                    scope.shield = True
                    await self._loop.run_aio_coroutine(client.wait_closed())

    @contextmanager
    def _file_errors(self, what: str) -> Iterator[None]:
        """Tell a broken way from a file that could not be read or written there."""
        try:
            with translated(self._where):
                yield
        except (SshClosed, TransferFailed) as exc:
            cause = exc.__cause__
            if isinstance(cause, asyncssh.SFTPError) and self.is_open:
                raise TransferFailed(
                    f"{self._where}: {what} failed: {cause.reason or type(cause).__name__}",
                    hint="look for a full disk or a read-only directory on the machine; its "
                    "shell must print nothing at login",
                ) from cause
            raise

    async def close(self) -> None:
        self._connection.close()
        with trio.move_on_after(_CLOSE_TIMEOUT_S) as scope:
            scope.shield = True
            await self._loop.run_aio_coroutine(self._connection.wait_closed())
        if scope.cancelled_caught:
            self._connection.abort()


class _Capture(asyncssh.SSHClientSession[bytes]):
    """Collects a command's output up to a limit and drains the rest."""

    def __init__(self, limit_bytes: int) -> None:
        self.stdout = bytearray()
        self.stderr = bytearray()
        self.truncated = False
        self.exit_code: int | None = None
        self.error: Exception | None = None
        self.ended = asyncio.Event()
        self._limit_bytes = limit_bytes

    def data_received(self, data: bytes, datatype: int | None) -> None:
        kept = self.stderr if datatype == asyncssh.EXTENDED_DATA_STDERR else self.stdout
        room = self._limit_bytes - len(kept)
        kept += data[:room] if room > 0 else b""
        self.truncated = self.truncated or len(data) > room

    def exit_status_received(self, status: int) -> None:
        self.exit_code = status

    def exit_signal_received(self, signal: str, core_dumped: bool, msg: str, lang: str) -> None:
        self.exit_code = 128 + _SIGNALS.get(signal, 127)

    def connection_lost(self, exc: Exception | None) -> None:
        self.error = exc
        self.ended.set()


class _Process:
    def __init__(
        self,
        loop: trio_asyncio.TrioEventLoop,
        writer: asyncssh.SSHWriter[bytes],
        reader: asyncssh.SSHReader[bytes],
        where: str,
    ) -> None:
        self._loop = loop
        self._writer = writer
        self._reader = reader
        self._where = where

    async def send(self, data: bytes) -> None:
        with translated(self._where):
            self._writer.write(data)
            await self._loop.run_aio_coroutine(self._writer.drain())

    async def send_eof(self) -> None:
        with translated(self._where):
            self._writer.write_eof()
        await trio.lowlevel.checkpoint()

    async def receive(self, limit: int) -> bytes:
        with translated(self._where):
            data: bytes = await self._loop.run_aio_coroutine(self._reader.read(limit))
        return data

    async def wait(self) -> int:
        channel = self._writer.channel
        with translated(self._where):
            await self._loop.run_aio_coroutine(channel.wait_closed())
        code = channel.get_exit_status()  # type: ignore[attr-defined]  # a client channel has it
        if code is None:
            raise SshClosed(f"{self._where}: a command ended without an exit code")
        return int(code)


def _end(channel: asyncssh.SSHClientChannel[bytes]) -> None:
    """End a command that still runs; the connection stays."""
    if channel.is_closing():
        return
    with contextlib.suppress(OSError):
        channel.send_signal("TERM")
    channel.abort()
