"""The sshd of a simulated instance, and the one module of the simulator that speaks asyncio.

Rules
1. One server per running instance with two listeners: the direct port and the proxy's.
2. Only root, only with a public key the contract accepts at that moment.
3. Callbacks of asyncssh do no waiting; every process has a task in the trio nursery of the server.
"""

import os
import socket
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import asyncssh
import trio
import trio_asyncio  # type: ignore[import-untyped]  # ships no types
from msgspec import Struct

from vastd.simulator.hosts.execution import Execution, Terminal
from vastd.simulator.hosts.sandbox import Sandbox, SandboxFailed

# As the live proxies greet; clients must not take it for output (SSH-10).
BANNER: Final = (
    "Welcome to vast.ai. If authentication fails, try again after a few seconds, and double check"
    " your ssh key.\nHave fun!\n"
)
SETTINGS_PASSED: Final = ("LANG", "LC_", "TERM", "COLORTERM")  # as OpenSSH's AcceptEnv on Debian
LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
SFTP_SERVERS: Final = (
    "/usr/lib/openssh/sftp-server",
    "/usr/libexec/openssh/sftp-server",
    "/usr/libexec/sftp-server",
    "/usr/lib/ssh/sftp-server",
)
WRITE_HIGH_BYTES: Final = 262_144  # output waiting for the client's window before we stop reading
LOGIN_LIMIT_S: Final = 30.0
CANNOT_EXECUTE: Final = 126


class HostFacts(Struct, frozen=True, kw_only=True):
    """What the sshd of one run of one instance needs to know."""

    instance_id: int
    sandbox: Sandbox
    accepts: Callable[[str], bool]  # an OpenSSH public key line
    host_key: Path  # made when it does not exist
    sftp_program: list[str]  # run inside
    refuses: Callable[[], bool] = (
        bool  # (never, unless given) asked at each connection; true breaks it off
    )


def sftp_program(tools: str) -> list[str]:
    """Return what serves SFTP in an instance that sees our scripts at `tools`."""
    program = next((path for path in SFTP_SERVERS if os.access(path, os.X_OK)), None)
    return [program] if program else own_sftp_program(tools)


def own_sftp_program(tools: str) -> list[str]:
    """Return the SFTP server that needs nothing but our interpreter and asyncssh."""
    return [sys.executable, f"{tools}/sftp-server.py"]


class Sshd:
    """The listeners of one instance and their connections."""

    def __init__(self, facts: HostFacts, nursery: trio.Nursery) -> None:
        self.facts = facts
        self.nursery = nursery
        self.connections: set[asyncssh.SSHServerConnection] = set()
        self.sessions = 0  # ever begun

    def drop_connections(self) -> None:
        """Break every connection at once, as a lost network would; processes go on."""
        for connection in list(self.connections):
            connection.abort()

    def begin(self, session: "_Session", command: list[str]) -> Execution | None:
        """Start the process of a session and the task that carries its bytes."""
        try:
            execution = Execution(
                self.facts.sandbox, session.channel, command, session.settings, session.terminal
            )
        except (OSError, SandboxFailed) as exc:
            session.channel.write(f"cannot start: {exc}\n".encode(), 1)
            session.channel.exit(CANNOT_EXECUTE)
            return None
        self.sessions += 1
        self.nursery.start_soon(execution.run)
        return execution


@asynccontextmanager
async def open_loop() -> AsyncIterator[None]:
    """Run the asyncio loop that every `open_sshd` needs around it."""
    async with trio_asyncio.open_loop():
        yield


@asynccontextmanager
async def open_sshd(facts: HostFacts, sockets: list[socket.socket]) -> AsyncIterator[Sshd]:
    """Serve SSH on bound sockets within the block; needs a trio-asyncio loop around it.

    Leaving ends all connections and the waiting for their processes, not the instance.
    """
    key = _host_key(facts.host_key)
    async with trio.open_nursery() as nursery:
        sshd = Sshd(facts, nursery)
        acceptors: list[asyncssh.SSHAcceptor] = []
        try:
            for sock in sockets:
                acceptor = await _listen(sshd, key, sock)
                acceptors.append(acceptor)
            yield sshd
        finally:
            for acceptor in acceptors:
                acceptor.close()
            sshd.drop_connections()
            nursery.cancel_scope.cancel()


async def _listen(sshd: Sshd, key: asyncssh.SSHKey, sock: socket.socket) -> asyncssh.SSHAcceptor:
    async def listen() -> asyncssh.SSHAcceptor:
        return await asyncssh.listen(
            sock=sock,
            server_factory=lambda: _Server(sshd),
            server_host_keys=[key],
            config=None,
            encoding=None,
            line_editor=False,
            allow_pty=True,
            agent_forwarding=False,
            x11_forwarding=False,
            password_auth=False,
            kbdint_auth=False,
            gss_auth=False,
            host_based_auth=False,
            login_timeout=LOGIN_LIMIT_S,
            rdns_lookup=False,
        )

    acceptor: asyncssh.SSHAcceptor = await trio_asyncio.aio_as_trio(listen)()
    return acceptor


def _host_key(path: Path) -> asyncssh.SSHKey:
    if path.exists():
        return asyncssh.read_private_key(path)
    key = asyncssh.generate_private_key("ssh-ed25519")
    path.touch(mode=0o600)
    path.write_bytes(key.export_private_key())
    return key


class _Server(asyncssh.SSHServer):
    """One connection."""

    def __init__(self, sshd: Sshd) -> None:
        self._sshd = sshd
        self._connection: asyncssh.SSHServerConnection | None = None

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn
        self._sshd.connections.add(conn)
        if self._sshd.facts.refuses():
            conn.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._connection is not None:
            self._sshd.connections.discard(self._connection)

    def begin_auth(self, username: str) -> bool:
        if self._connection is not None:
            self._connection.send_auth_banner(BANNER)
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        line = key.export_public_key("openssh").decode()
        return username == "root" and self._sshd.facts.accepts(line)

    def session_requested(
        self,
    ) -> "tuple[asyncssh.SSHServerChannel[bytes], asyncssh.SSHServerSession[bytes]]":
        assert self._connection is not None
        channel = self._connection.create_server_channel(encoding=None)
        channel.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        return channel, _Session(self._sshd, self._connection, channel)

    def connection_requested(
        self, dest_host: str, dest_port: int, orig_host: str, orig_port: int
    ) -> bool:
        # The instance shares the host's loopback; anything further would make it a relay.
        return dest_host in LOOPBACK


class _Session(asyncssh.SSHServerSession[bytes]):
    """One channel: what was asked for, and the execution that serves it."""

    def __init__(
        self,
        sshd: Sshd,
        connection: asyncssh.SSHServerConnection,
        channel: "asyncssh.SSHServerChannel[bytes]",
    ) -> None:
        self._sshd = sshd
        self._connection = connection
        self.channel = channel
        self.terminal: Terminal | None = None
        self.settings: dict[str, str] = {}
        self._command: list[str] = []
        self._execution: Execution | None = None

    def pty_requested(
        self, term_type: str, term_size: tuple[int, int, int, int], term_modes: Mapping[int, int]
    ) -> bool:
        self.terminal = Terminal(kind=term_type, columns=term_size[0], rows=term_size[1])
        return True

    def shell_requested(self) -> bool:
        self._command = ["login"]
        return True

    def exec_requested(self, command: str) -> bool:
        self._command = ["command", command]
        return "\0" not in command

    def subsystem_requested(self, subsystem: str) -> bool:
        program = self._sshd.facts.sftp_program
        self._command = ["subsystem", *program]
        return subsystem == "sftp"

    def session_started(self) -> None:
        for name, value in self.channel.get_environment().items():
            if name.startswith(SETTINGS_PASSED) and value.isprintable():
                self.settings[name] = value
        peer = self._connection.get_extra_info("peername")
        own = self._connection.get_extra_info("sockname")
        if peer and own:
            self.settings["SSH_CLIENT"] = f"{peer[0]} {peer[1]} {own[1]}"
            self.settings["SSH_CONNECTION"] = f"{peer[0]} {peer[1]} {own[0]} {own[1]}"
        self._execution = self._sshd.begin(self, self._command)

    def data_received(self, data: bytes, datatype: int | None) -> None:
        if self._execution is not None:
            self._execution.data_received(data)

    def eof_received(self) -> bool:
        if self._execution is not None:
            self._execution.eof_received()
        return True  # our direction stays open

    def pause_writing(self) -> None:
        if self._execution is not None:
            self._execution.pause_writing()

    def resume_writing(self) -> None:
        if self._execution is not None:
            self._execution.resume_writing()

    def signal_received(self, signal: str) -> None:
        if self._execution is not None:
            self._execution.signal(signal)

    def terminal_size_changed(self, width: int, height: int, pixwidth: int, pixheight: int) -> None:
        if self._execution is not None:
            with suppress(OSError):  # the process has just ended
                self._execution.resize(width, height)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._execution is not None:
            self._execution.connection_lost()
