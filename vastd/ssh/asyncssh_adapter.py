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
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

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
from vastd.ssh.asyncssh_errors import caused_by, read_key, reason, translated
from vastd.ssh.asyncssh_files import AsyncsshFiles
from vastd.ssh.asyncssh_streams import Capture, Process, end_channel
from vastd.ssh.known_hosts import KnownHosts, host_key_changed
from vastd.ssh.openssh import CONNECT_TIMEOUT_S, KEEPALIVE_COUNT, KEEPALIVE_INTERVAL_S
from vastd.ssh.port import CommandResult, SftpFiles, SshConnection, SshDialer, SshProcess

T = TypeVar("T")

logger = logging.getLogger(__name__)

_LOGIN_TIMEOUT_S: Final = 15.0  # REQUIREMENTS SSH-06: 30 s per attempt, half of it for TCP
_CLOSE_TIMEOUT_S: Final = 2.0  # guess; a peer that answers at all does so within a second
_MAX_CHANNELS: Final = 8  # OpenSSH's default MaxSessions is 10; two are left for other tools
_REOPEN_PAUSES_S: Final = (0.05, 0.1, 0.2, 0.4, 0.8)  # guess: reaping takes milliseconds
_FIRST_HOST_KEY_ALGS: Final = [
    # Without host certificates, which we have no authority to check.
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "rsa-sha2-512",
    "rsa-sha2-256",
]


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
        yield _Dialer(
            _EnteredLoop(loop),
            identity,
            known_hosts,
            connect_timeout_s,
            login_timeout_s,
            keepalive_s,
        )


def _log_stray_exception(_loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
    error = context.get("exception")
    # Copies in flight when a connection ends: whoever waited has been told already.
    expected = isinstance(error, asyncssh.Error | OSError)
    level = logging.DEBUG if expected else logging.WARNING
    logger.log(level, "ssh: %s: %r", context.get("message"), error)


class _EnteredLoop:
    """The loop, entered anew for each call.

    asyncio finds its loop by a context variable that only tasks born under `open_loop` have; our
    callers are the daemon's own tasks.
    """

    def __init__(self, loop: trio_asyncio.TrioEventLoop) -> None:
        self._loop = loop

    async def run_aio_coroutine(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run an asyncio coroutine from a trio task and return its result."""
        token = trio_asyncio.current_loop.set(self._loop)
        try:
            result: T = await self._loop.run_aio_coroutine(coroutine)
            return result
        finally:
            trio_asyncio.current_loop.reset(token)


class _Dialer:
    def __init__(
        self,
        loop: _EnteredLoop,
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
        finally:
            if not witness.connected:
                peer.close()  # cancelled before asyncssh took it over
        self._record(instance_id, witness)
        return _Connection(self._loop, connection, endpoint, where, witness)

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
            client_keys=[read_key(self._identity)],
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
        self.connected = False
        self.lost: Exception | None = None  # None while open, and after our own close
        self._saw_other_key = False

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
        self.connected = True

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = exc

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
        loop: _EnteredLoop,
        connection: asyncssh.SSHClientConnection,
        endpoint: Endpoint,
        where: str,
        witness: _HostKeyWitness,
    ) -> None:
        self._loop = loop
        self._connection = connection
        self._endpoint = endpoint
        self._where = where
        self._witness = witness
        self._worn_out = False
        self._slots = trio.Semaphore(_MAX_CHANNELS)

    @property
    def endpoint(self) -> Endpoint:
        return self._endpoint

    @property
    def is_open(self) -> bool:
        return not (self._worn_out or self._connection.is_closed())

    async def run(
        self, command: str, *, stdin: bytes = b"", timeout_s: float, limit_bytes: int
    ) -> CommandResult:
        try:
            with trio.fail_after(timeout_s):
                async with self._slots:
                    with self._translated():
                        return await self._capture(command, stdin, limit_bytes)
        except trio.TooSlowError as exc:
            raise SshTimeout(f"{self._where}: a command did not end in {timeout_s:g} s") from exc

    async def _capture(self, command: str, stdin: bytes, limit_bytes: int) -> CommandResult:
        session = Capture(limit_bytes)
        channel, _ = await self._open(
            lambda: self._connection.create_session(lambda: session, command, encoding=None),
            lambda opened: end_channel(opened[0]),
        )
        try:
            # A command may end without reading its input; its own result tells the rest.
            with contextlib.suppress(OSError):
                channel.write(stdin)
                channel.write_eof()
            await session.ended.wait()
        finally:
            if not session.ended.is_set():
                end_channel(channel)
        return session.result()

    @asynccontextmanager
    async def open_process(
        self, command: str, *, terminal: bool = False
    ) -> AsyncIterator[SshProcess]:
        async with self._slots:
            with self._translated():
                writer, reader, _stderr = await self._open(
                    lambda: self._connection.open_session(
                        command, encoding=None, term_type="xterm" if terminal else None
                    ),
                    lambda opened: end_channel(opened[0].channel),
                )
            try:
                yield Process(self._loop.run_aio_coroutine, writer, reader, self._translated)
            finally:
                end_channel(writer.channel)

    @asynccontextmanager
    async def open_sftp(self) -> AsyncIterator[SftpFiles]:
        async with self._slots:
            with self._file_errors("opening the file service (sftp)"):
                client = await self._open(
                    self._connection.start_sftp_client, lambda opened: opened.exit()
                )
            try:
                yield AsyncsshFiles(self._loop.run_aio_coroutine, client, self._file_errors)
            finally:
                client.exit()
                with trio.move_on_after(_CLOSE_TIMEOUT_S) as scope:
                    scope.shield = True
                    await self._loop.run_aio_coroutine(client.wait_closed())

    async def _open(self, opening: Callable[[], Awaitable[T]], discard: Callable[[T], None]) -> T:
        """Open a channel; when sshd has none left, wait for one that is just being closed."""
        for pause_s in _REOPEN_PAUSES_S:
            try:
                return await self._loop.run_aio_coroutine(_aio_open(opening, discard))
            except asyncssh.ChannelOpenError:
                if self._connection.is_closed():
                    raise
            # sshd counts a session until it has reaped the child, a little after we saw it end.
            await trio.sleep(pause_s)
        return await self._loop.run_aio_coroutine(_aio_open(opening, discard))

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Also name a lost connection by its cause, where asyncssh only says it is closed."""
        try:
            with translated(self._where):
                yield
        except SshClosed as exc:
            # Sessions that hang on the machine use up its limit: a new connection has its own.
            self._worn_out |= isinstance(exc.__cause__, asyncssh.ChannelOpenError)
            with translated(self._where):
                if self._witness.lost is not None:
                    raise self._witness.lost from None
            raise

    @contextmanager
    def _file_errors(self, what: str) -> Iterator[None]:
        """Tell a broken way from a file that could not be read or written there."""
        try:
            with self._translated():
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


async def _aio_open(opening: Callable[[], Awaitable[T]], discard: Callable[[T], None]) -> T:
    """Open something; when cancelled meanwhile, discard it as soon as it is open.

    A channel that nobody knows would occupy one of the few that sshd allows.
    """
    task = asyncio.ensure_future(opening())

    def discard_late(done: "asyncio.Future[T]") -> None:
        if not done.cancelled() and done.exception() is None:
            discard(done.result())

    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(discard_late)
        raise
