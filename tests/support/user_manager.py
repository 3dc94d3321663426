"""A real `systemd --user` of an ordinary user, in mount, PID and cgroup namespaces of its own.

Needs root and a cgroup v2 tree that may be written. The machine's own init may be anything, and
nothing of it is touched: the namespaces end with the block, and everything in them.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.source_tree import ROOT

UID = 4242
LIMIT_S = 60.0
MANAGER = Path("/lib/systemd/systemd")
_CGROUPS = (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup"))  # hybrid, unified

# $1: the scratch directory, $2: the notify socket; then `closed:needed` directories (`_ways_in`).
_INNER = """
set -eu
scratch=$1 notify=$2; shift 2
mount -t proc proc /proc
mount -t cgroup2 cgroup2 /sys/fs/cgroup
cgroup=/sys/fs/cgroup/user.slice/user-UID.slice/user@UID.service  # as logind names it
mkdir -p "$cgroup"
# The interpreter may lie in a home nobody else may enter: it gets a way in, here only.
n=0
for pair in "$@"; do
    n=$((n + 1)); mkdir "$scratch/keep$n"; mount --bind "${pair#*:}" "$scratch/keep$n"
done
for pair in "$@"; do mountpoint -q "${pair%%:*}" || mount -t tmpfs -o mode=755 tmpfs "${pair%%:*}"; done
n=0
for pair in "$@"; do
    n=$((n + 1)); mkdir -p "${pair#*:}"; mount --bind "$scratch/keep$n" "${pair#*:}"
done
mount --bind "$scratch/passwd" /etc/passwd
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/systemd/system /run/user/UID
chown UID:UID /run/user/UID; chmod 700 /run/user/UID
chown -R UID:UID "$cgroup"
mkdir /sys/fs/cgroup/init.scope
echo $$ > /sys/fs/cgroup/init.scope/cgroup.procs
(read -r self _ < /proc/self/stat; echo "$self" > "$cgroup/cgroup.procs"
 NOTIFY_SOCKET=$notify exec setpriv --reuid UID --regid UID --clear-groups MANAGER --user) &
wait
""".replace("UID", str(UID)).replace("MANAGER", str(MANAGER))


# Kept on disk and split by user, as where /var/log/journal exists; the kernel is left alone.
_JOURNAL = """
set -eu
printf '[Journal]\\nStorage=persistent\\nSplitMode=uid\\nAudit=no\\nReadKMsg=no\\n' > "$1/journald.conf"
mount --bind "$1/journald.conf" /etc/systemd/journald.conf
mount -t tmpfs tmpfs /var/log
mkdir -p "/var/log/journal/$(cat /etc/machine-id)" /run/systemd/journal
touch /run/systemd/journal/flushed
exec /lib/systemd/systemd-journald
"""


class UserManager:
    """One user's systemd. `run` gives a command as that user, beside it."""

    def __init__(self, scratch: Path, init: int) -> None:
        self.home = scratch / "home"
        self._scratch = scratch
        self._init = init
        self.env = {
            "HOME": str(self.home),
            "XDG_RUNTIME_DIR": f"/run/user/{UID}",
            "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
            "LC_ALL": "C.UTF-8",
        }

    def run(self, *words: str, check: bool = True, **env: str) -> subprocess.CompletedProcess[str]:
        """Run one program to its end as the user."""
        done = subprocess.run(
            ["nsenter", "-t", str(self._init), "-m", "-p", "-C", f"--wd={self.home}", "setpriv",
             "--reuid", str(UID), "--regid", str(UID), "--clear-groups", *words],
            env={**self.env, **env}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=LIMIT_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0 or not check, f"{words}: {done.stdout}{done.stderr}"
        return done

    def systemctl(self, *words: str, check: bool = True) -> str:
        """Return what `systemctl --user` printed."""
        return self.run("systemctl", "--user", "--no-pager", *words, check=check).stdout.strip()

    def show(self, unit: str, name: str) -> str:
        """Return one property of a unit."""
        return self.systemctl("show", unit, f"--property={name}", "--value")

    def vastctl(
        self, *words: str, check: bool = True, **env: str
    ) -> subprocess.CompletedProcess[str]:
        """Run the installed `vastctl`."""
        return self.run("vastctl", *words, check=check, **env)

    def status(self) -> dict:  # type: ignore[type-arg]
        """Return `vastctl --json daemon status`."""
        return json.loads(self.vastctl("--json", "daemon", "status").stdout)

    def start_journal(self) -> None:
        """Start a journal; services started from now on log to it."""
        name = f"{self._scratch.name}-journal"
        inside = ["nsenter", "-t", str(self._init), "-m", "-p", "-C"]
        with _ear(name) as ear:
            subprocess.Popen(
                [*inside, "sh", "-c", _JOURNAL, "sh", str(self._scratch)],
                env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "NOTIFY_SOCKET": f"@{name}"},
                stdin=subprocess.DEVNULL,
            ).returncode = 0  # it ends with the namespaces
            _ready(ear)

    def write(self, path: str, text: str) -> Path:
        """Write a file of the user's, below his home."""
        made = self.home / path
        made.parent.mkdir(parents=True, exist_ok=True)
        made.write_text(text)
        for one in (made, *made.parents):
            if one == self.home:
                break
            os.chown(one, UID, UID)
        return made


def why_not() -> str | None:
    """Return why no manager can be started here, or None."""
    if os.geteuid() != 0:
        return "needs root to make a user manager in namespaces of its own"
    if not MANAGER.exists():
        return "needs Debian's package systemd"
    if _cgroups() is None:
        return "needs a writable cgroup v2 tree"
    probe = [
        "unshare",
        "-m",
        "-p",
        "-f",
        "-C",
        "mount",
        "-t",
        "cgroup2",
        "cgroup2",
        "/sys/fs/cgroup",
    ]
    if subprocess.run(probe, capture_output=True, check=False).returncode != 0:
        return "needs the right to make namespaces and mounts"
    return None


@contextmanager
def user_manager() -> Iterator[UserManager]:
    """Yield a manager that has reached its default target; ends it with all its services."""
    scratch = Path(tempfile.mkdtemp(prefix="vu-", dir="/tmp"))
    scratch.chmod(0o755)
    home = scratch / "home"
    home.mkdir()
    os.chown(home, UID, UID)
    passwd = Path("/etc/passwd").read_text()
    (scratch / "passwd").write_text(f"{passwd}vuser:x:{UID}:{UID}::{home}:/bin/sh\n")
    cgroups = _cgroups()
    assert cgroups is not None
    cgroup = cgroups / scratch.name
    cgroup.mkdir()
    log = scratch / "manager.log"
    outer = None
    try:
        with _ear(scratch.name) as ear, log.open("wb") as output:
            outer = subprocess.Popen(
                ["sh", "-c", 'echo $$ >"$0/cgroup.procs"; exec unshare "$@"', str(cgroup),
                 "-m", "-p", "-f", "-C", "--kill-child", "sh", "-c", _INNER, "sh", str(scratch),
                 f"@{scratch.name}", *_ways_in()],
                env={"HOME": str(home), "XDG_RUNTIME_DIR": f"/run/user/{UID}",
                     "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "SYSTEMD_LOG_TARGET": "console"},
                stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            )  # fmt: skip
            _ready(ear)
        yield UserManager(scratch, _children(outer.pid)[0])
    finally:
        if outer is not None:
            for init in _children(outer.pid):
                os.kill(init, signal.SIGKILL)  # all others in its PID namespace end before it
            outer.wait(LIMIT_S)
        for directory, _, _ in os.walk(cgroup, topdown=False):
            Path(directory).rmdir()
        shutil.rmtree(scratch, ignore_errors=True)


def _ear(name: str) -> socket.socket:
    """Return a notify socket; the name is abstract, as a file could not be seen from inside."""
    ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    ear.bind(f"\0{name}")
    ear.settimeout(LIMIT_S)
    return ear


def _ready(ear: socket.socket) -> None:
    while b"READY=1" not in ear.recv(4096).split(b"\n"):
        pass


def _children(pid: int) -> list[int]:
    try:
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def _ways_in() -> list[str]:
    """Return `closed:needed` for each directory of ours below one that others may not enter."""
    needed = {Path(p).resolve() for p in (sys.base_prefix, sys.prefix, ROOT)}
    pairs = []
    for one in sorted(needed):
        closed = [above for above in (*one.parents, one) if not above.stat().st_mode & 0o001]
        if closed:
            pairs.append(f"{min(closed, key=lambda path: len(path.parts))}:{one}")
    return pairs


def _cgroups() -> Path | None:
    for tree in _CGROUPS:
        if (tree / "cgroup.controllers").exists() and os.access(tree / "cgroup.procs", os.W_OK):
            return tree
    return None
