"""A real OpenSSH server on loopback that plays a rented machine: own home, GPU stand-ins."""

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from vastd.core.market import Instance
from vastd.jobs.port import BoxTarget

SSHD = "/usr/sbin/sshd"
SFTP_SERVERS = (
    "/usr/lib/openssh/sftp-server",
    "/usr/libexec/sftp-server",
    "/usr/lib/ssh/sftp-server",
)
TOOL_DIRS = ("/usr/local/bin", "/usr/bin", "/bin")

WRAPPER = """#!/bin/sh
# Every command of every session passes here, as it would pass the machine's start-up files.
HOME={home}; PATH={path}; TMUX_TMPDIR={home}
export HOME PATH TMUX_TMPDIR
unset TMUX
[ -f {home}/noise ] && cat {home}/noise
if [ -f {home}/login-tmux ] && [ ! -e {home}/.no_auto_tmux ]; then
  if [ -t 0 ]; then exec /bin/sh; fi
  echo "no sessions"
  exit 0
fi
cd {home}
exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"
"""

NVIDIA_SMI = """#!/bin/sh
[ -f {home}/smi-broken ] && {{ echo "NVIDIA-SMI has failed because it could not communicate"; exit 9; }}
case "$*" in
  *--query-gpu=name,*) cat {home}/gpus ;;
  *--query-gpu=utilization.gpu*) cut -d, -f4 {home}/gpus ;;
  *) echo "| NVIDIA-SMI 550.54.14    Driver Version: 550.54.14    CUDA Version: 12.4     |" ;;
esac
"""

NVCC = """#!/bin/sh
echo "Cuda compilation tools, release 12.1, V12.1.105"
"""


class Sshd:
    """Starts one `sshd -i` per connection, so that no port is guessed and nothing is awaited."""

    def __init__(
        self, directory: Path, *, hidden: tuple[str, ...] = (), login_shell: bool = False
    ) -> None:
        """`hidden` tools are missing there; `login_shell` puts a noisy shell in the way."""
        self.directory = directory
        self.home = directory / "home"
        self.workspace = self.home / "workspace"
        self.user = pwd.getpwuid(os.geteuid()).pw_name  # the only one a user's own sshd lets in
        self.port = 0
        self.accepted = 0
        self._peers: list[socket.socket] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        self._make_home(hidden, login_shell)
        self.client_key = directory / "client_key"
        self.new_host_key()
        keygen(self.client_key)
        shutil.copy(f"{self.client_key}.pub", directory / "authorized_keys")

    def _make_home(self, hidden: tuple[str, ...], login_shell: bool) -> None:
        stubs = self.directory / "stubs"
        for each in (self.home, stubs):
            each.mkdir()
        for name, text in (("nvidia-smi", NVIDIA_SMI), ("nvcc", NVCC)):
            write_script(stubs / name, text.format(home=self.home))
        (self.home / "gpus").write_text("NVIDIA GeForce RTX 4090, 24564, 3, 0, 550.54.14\n")
        path = f"{stubs}:{os.environ['PATH']}"
        if hidden:
            path = f"{stubs}:{tools_without(self.directory / 'tools', hidden)}"
        wrapper = self.directory / "wrapper"
        write_script(wrapper, WRAPPER.format(home=self.home, path=path))
        self._session = (
            f"ForceCommand {wrapper}"
            if login_shell
            else f"SetEnv HOME={self.home} PATH={path} TMUX_TMPDIR={self.home}"
        )

    def new_host_key(self) -> None:
        """Give the server another identity, as if another machine answered."""
        key = self.directory / "host_key"
        key.unlink(missing_ok=True)
        keygen(key)
        sftp = next(path for path in SFTP_SERVERS if Path(path).exists())
        (self.directory / "sshd_config").write_text(
            f"HostKey {key}\nAuthorizedKeysFile {self.directory}/authorized_keys\n"
            "StrictModes no\nUsePAM no\nPasswordAuthentication no\nPidFile none\n"
            "KbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\n"
            f"Subsystem sftp {sftp}\n{self._session}\nMaxSessions 10\n"
            f"Banner {self.directory}/banner\nLogLevel ERROR\n"
        )
        (self.directory / "banner").write_text("Welcome to vast.ai.\nHave fun!\n")

    def become(self, other: "Sshd") -> None:
        """Be the same machine as `other`, at another address."""
        for name in ("host_key", "host_key.pub", "authorized_keys"):
            shutil.copy(other.directory / name, self.directory / name)

    def target(self, instance_id: int = 42) -> BoxTarget:
        return target(self.port, instance_id)

    async def serve(self, listener: trio.SocketListener, nursery: trio.Nursery) -> None:
        """Serve for ever; cancelled with the rig."""
        while True:
            stream = await listener.accept()
            self.accepted += 1
            peer = socket.socket(fileno=os.dup(stream.socket.fileno()))
            await stream.aclose()
            peer.setblocking(True)  # sshd expects a plain descriptor
            self._peers.append(peer)
            nursery.start_soon(self._hang_up_after, self._start(peer), peer)

    def _start(self, peer: socket.socket) -> subprocess.Popen[bytes]:
        command = [SSHD, "-i", "-e", "-f", str(self.directory / "sshd_config")]
        process = subprocess.Popen(command, stdin=peer, stdout=peer, stderr=subprocess.DEVNULL)
        self._processes.append(process)
        return process

    async def _hang_up_after(self, process: subprocess.Popen[bytes], peer: socket.socket) -> None:
        """Let the client see when its sshd is gone: we hold the connection open as well."""
        await ended(process.pid)
        with contextlib.suppress(OSError):
            peer.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        """Break every connection at once, as a network does."""
        for peer in self._peers:
            with contextlib.suppress(OSError):  # already closed by its client
                peer.shutdown(socket.SHUT_RDWR)
            peer.close()
        self._peers.clear()

    def close(self) -> None:
        self.cut()
        for process in self._processes:
            process.kill()
            process.wait()
        if shutil.which("tmux"):
            environment = {**os.environ, "TMUX_TMPDIR": str(self.home)}
            subprocess.run(
                ["tmux", "kill-server"], env=environment, capture_output=True, check=False
            )


def target(port: int, instance_id: int = 42) -> BoxTarget:
    """An instance whose sshd answers directly on this port of loopback."""
    row = Instance(instance_id=instance_id, public_ip="127.0.0.1", direct_ssh_port=port)
    return BoxTarget(rental_id="r-1", instance_id=instance_id, instance=row)


@asynccontextmanager
async def running_sshd(
    directory: Path, *, hidden: tuple[str, ...] = (), login_shell: bool = False
) -> AsyncIterator[Sshd]:
    if os.geteuid() == 0:
        os.makedirs("/run/sshd", mode=0o755, exist_ok=True)  # where sshd drops its rights
    rig = Sshd(directory, hidden=hidden, login_shell=login_shell)
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    rig.port = listener.socket.getsockname()[1]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.serve, listener, nursery)
        try:
            yield rig
        finally:
            nursery.cancel_scope.cancel()
            rig.close()
            listener.socket.close()


class Relay:
    """A stretch of network in front of the rig that can be frozen."""

    def __init__(self, port: int) -> None:
        self._to_port = port
        self.port = 0
        self.frozen = False

    async def serve(self, listener: trio.SocketListener) -> None:
        await trio.serve_listeners(self._handle, [listener])

    async def _handle(self, client: trio.SocketStream) -> None:
        server = await trio.open_tcp_stream("127.0.0.1", self._to_port)
        async with client, server, trio.open_nursery() as nursery:
            nursery.start_soon(self._pump, client, server)
            nursery.start_soon(self._pump, server, client)

    async def _pump(self, source: trio.SocketStream, sink: trio.SocketStream) -> None:
        try:
            async for data in source:
                if self.frozen:
                    await trio.sleep_forever()
                await sink.send_all(data)
            await sink.send_eof()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the other side is gone; so are we


@asynccontextmanager
async def running_relay(port: int) -> AsyncIterator[Relay]:
    relay = Relay(port)
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    relay.port = listener.socket.getsockname()[1]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(relay.serve, listener)
        yield relay
        nursery.cancel_scope.cancel()


async def ended(pid: int) -> None:
    """Wait for the end of a process that is no child of ours."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        await trio.lowlevel.wait_readable(descriptor)
    finally:
        os.close(descriptor)


def keygen(path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)


def write_script(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def tools_without(directory: Path, hidden: tuple[str, ...]) -> Path:
    """Make a directory with every tool of this machine but the hidden ones."""
    directory.mkdir()
    for place in TOOL_DIRS:
        for tool in Path(place).iterdir():
            link = directory / tool.name
            if tool.name not in hidden and not link.is_symlink():
                link.symlink_to(tool)
    return directory
