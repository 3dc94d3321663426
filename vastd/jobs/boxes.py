"""The door to all machines: one kept connection per instance, dialled when first needed.

Rules
1. asyncssh and its loop are loaded at the first dial: a daemon without rentals stays small.
2. A connection is shared by everybody who opens the same instance, and dialled again when it
   broke or when the instance got new ports.
3. Direct first, then the proxy; the way that worked last time goes first.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import trio

from vastd.errors import SshAuthRejected, SshError, SshHostKeyChanged, SshRefused
from vastd.jobs.carrier import Carrier
from vastd.jobs.known_sums import LocalSums
from vastd.jobs.port import Box, BoxTarget, Endpoint, Route
from vastd.jobs.remote_shell import RemoteShell, runner_text
from vastd.jobs.remote_sums import RemoteSums
from vastd.jobs.rsync import RsyncLink
from vastd.jobs.ssh_box import SshBox
from vastd.jobs.sync import KnownFiles
from vastd.ssh.endpoints import endpoints, prefer
from vastd.ssh.identity import Identity, resolve_identity
from vastd.ssh.known_hosts import KnownHosts
from vastd.ssh.openssh import CONNECT_TIMEOUT_S, KEEPALIVE_INTERVAL_S, ssh_argv
from vastd.ssh.port import SshDialer

_CLOSE_TIMEOUT_S: Final = 5.0  # guess; closing must not keep the daemon from stopping


@asynccontextmanager
async def open_boxes(
    state_dir: Path,
    identity: Path | None = None,
    *,
    connect_timeout_s: float = CONNECT_TIMEOUT_S,
    login_timeout_s: float = CONNECT_TIMEOUT_S,
    keepalive_s: float = KEEPALIVE_INTERVAL_S,
    workspace: str = "/workspace",
    user: str = "root",
    use_rsync: bool | None = None,
) -> AsyncIterator["SshBoxes"]:
    """Yield the door to all machines; leaving closes every connection, jobs go on.

    `identity` is the private key the configuration names, None for the usual ones.
    `use_rsync` is None to ask both ends, False to always use SFTP.
    """
    known_hosts = KnownHosts(state_dir / "ssh" / "known_hosts")
    async with trio.open_nursery() as nursery:
        boxes = SshBoxes(
            _LazyDialer(nursery, known_hosts, connect_timeout_s, login_timeout_s, keepalive_s),
            known_hosts,
            _LazyIdentity(state_dir, identity),
            workspace=workspace,
            user=user,
            use_rsync=use_rsync,
            connect_timeout_s=connect_timeout_s,
        )
        try:
            yield boxes
        finally:
            with trio.move_on_after(_CLOSE_TIMEOUT_S) as scope:
                scope.shield = True
                await boxes.forget_all()
            nursery.cancel_scope.cancel()


class _LazyIdentity:
    """Looks for the key once, when it is first needed."""

    def __init__(self, state_dir: Path, configured: Path | None) -> None:
        self._state_dir = state_dir
        self._configured = configured
        self._found: Identity | None = None

    def get(self) -> Identity:
        if self._found is None:
            self._found = resolve_identity(self._state_dir, self._configured)
        return self._found


class _LazyDialer:
    """Starts the asyncio loop, in the door's own nursery, at the first dial."""

    def __init__(
        self,
        nursery: trio.Nursery,
        known_hosts: KnownHosts,
        connect_timeout_s: float,
        login_timeout_s: float,
        keepalive_s: float,
    ) -> None:
        self._nursery = nursery
        self._known_hosts = known_hosts
        self._limits = (connect_timeout_s, login_timeout_s, keepalive_s)
        self._lock = trio.Lock()
        self._dialer: SshDialer | None = None

    async def get(self, identity: Path) -> SshDialer:
        async with self._lock:
            if self._dialer is None:
                self._dialer = await self._nursery.start(self._host, identity)
            return self._dialer

    async def _host(self, identity: Path, task_status: trio.TaskStatus[SshDialer]) -> None:
        from vastd.ssh.asyncssh_adapter import open_dialer  # rule 1

        connect, login, keepalive = self._limits
        async with open_dialer(
            identity,
            self._known_hosts,
            connect_timeout_s=connect,
            login_timeout_s=login,
            keepalive_s=keepalive,
        ) as dialer:
            task_status.started(dialer)
            await trio.sleep_forever()


class _Slot:
    """What is kept of one instance; the lock is held while dialling."""

    def __init__(self) -> None:
        self.lock = trio.Lock()
        self.box: SshBox | None = None
        self.route: Route | None = None  # which worked last time; None before the first
        self.sums = RemoteSums()  # outlive a connection: they know when a file is another one


class SshBoxes:
    """Implements `jobs.port.Boxes`; made by `open_boxes`."""

    def __init__(
        self,
        dialer: _LazyDialer,
        known_hosts: KnownHosts,
        identity: _LazyIdentity,
        *,
        workspace: str,
        user: str,
        use_rsync: bool | None,
        connect_timeout_s: float,
    ) -> None:
        self._dialer = dialer
        self._known_hosts = known_hosts
        self._identity = identity
        self._workspace = workspace
        self._user = user
        self._use_rsync = use_rsync
        self._connect_timeout_s = connect_timeout_s
        self._sums = LocalSums()
        self._slots: dict[int, _Slot] = {}

    @asynccontextmanager
    async def open(self, target: BoxTarget) -> AsyncIterator[Box]:
        """Connect or join; the connection stays when the context is left.

        An answer that names the cause (the key, the host key) is raised before the silence of
        another address.
        """
        slot = self._slots.setdefault(target.instance_id, _Slot())
        async with slot.lock:
            known = prefer(endpoints(target.instance, self._user), slot.route or target.first)
            box = slot.box
            if box is not None and not (
                box.connection.is_open and box.connection.endpoint in known
            ):
                slot.box = None
                await box.connection.close()
                box = None
            if box is None:
                box = await self._dial(target.instance_id, known, slot.sums)
                slot.box, slot.route = box, box.connection.endpoint.route
        yield box

    async def forget(self, instance_id: int) -> None:
        slot = self._slots.pop(instance_id, None)
        if slot is None:
            return
        async with slot.lock:
            if slot.box is not None:
                await slot.box.connection.close()

    async def forget_all(self) -> None:
        """Close every connection."""
        async with trio.open_nursery() as nursery:
            for instance_id in list(self._slots):
                nursery.start_soon(self.forget, instance_id)

    def public_key(self) -> str:
        """Return the public half of the identity we use, as one OpenSSH line.

        Raises:
            ConfigError: the configured key cannot be used.
        """
        return self._identity.get().public_line

    def ssh_argv(self, endpoint: Endpoint, instance_id: int) -> list[str]:
        """Return the user's OpenSSH client with our options; needs one connection before."""
        return ssh_argv(
            endpoint,
            instance_id,
            self._identity.get().private_path,
            self._known_hosts.path(instance_id),
            self._connect_timeout_s,
        )

    async def _dial(self, instance_id: int, known: list[Endpoint], sums: RemoteSums) -> SshBox:
        if not known:
            raise SshRefused(
                f"instance {instance_id} has no SSH address yet",
                hint="Vast assigns ports when the machine runs; try again",
            )
        dialer = await self._dialer.get(self._identity.get().private_path)
        failures: list[SshError] = []
        for endpoint in known:
            try:
                connection = await dialer.connect(endpoint, instance_id)
            except SshHostKeyChanged:
                raise
            except SshError as exc:
                failures.append(exc)
                continue
            shell = RemoteShell(connection, self._workspace, runner_text())
            link = RsyncLink(endpoint=endpoint, ssh_argv=self.ssh_argv(endpoint, instance_id))
            carrier = Carrier(shell, link, use_rsync=self._use_rsync)
            return SshBox(shell, carrier, KnownFiles(here=self._sums, there=sums))
        raise _told(failures)


def _told(failures: list[SshError]) -> SshError:
    """Return what is raised when no way worked: the answer that names a cause, or else the last
    silence; its words tell of every way that was tried."""
    rejected = [exc for exc in failures if isinstance(exc, SshAuthRejected)]
    chosen = (rejected or failures)[-1]
    others = [str(exc) for exc in failures if exc is not chosen]
    if not others:
        return chosen
    told = type(chosen)("; ".join([*others, str(chosen)]), hint=chosen.hint)
    told.__cause__ = chosen
    return told
