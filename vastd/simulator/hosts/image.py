"""What an instance finds on its disk: a root directory, made-up `/etc`, stand-ins for GPU tools.

Rules
1. Files are written on the host side only before anything ran in the directory, because
   afterwards a job may have put a symlink in their place.
2. Nothing of the user is copied in: no home, no secrets, no configuration but single harmless
   files of `/etc`.
"""

import importlib.resources
import os
import pwd
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct

TOOLS_DIR: Final = "/opt/vast/bin"  # where an instance sees our scripts
PATH_INSIDE: Final = f"{TOOLS_DIR}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
DIRECTORIES: Final = (
    "dev", "etc", "home", "mnt", "opt", "opt/vast", "opt/vast/bin", "proc", "root", "run", "srv",
    "tmp", "usr", "var", "var/log", "var/tmp", "workspace",
)  # fmt: skip
STICKY: Final = ("tmp", "var/tmp")
USR_LINKS: Final = ("bin", "lib", "lib32", "lib64", "libx32", "sbin")
# Single files and directories of the host that programs need and that tell nothing of the user.
ETC_FROM_HOST: Final = (
    "/etc/ld.so.cache", "/etc/ssl/certs", "/etc/ca-certificates", "/etc/pki/tls/certs",
    "/etc/pki/ca-trust", "/etc/alternatives", "/etc/localtime", "/etc/resolv.conf", "/etc/terminfo",
)  # fmt: skip
COMPUTE_CAP_SCALE: Final = 100  # VAST_API 2.4: 890 is 8.9


class GpuSetup(Struct, frozen=True, kw_only=True):
    """What `nvidia-smi` shall say."""

    name: str  # NVIDIA's own name
    count: int
    memory_mib: int
    driver_version: str
    cuda_version: str
    compute_cap: int  # x100
    power_w: int
    error: str = ""  # set: nvidia-smi prints it and fails


class InstanceDisk(Struct, frozen=True, kw_only=True):
    """The host side of one instance's disk."""

    root: Path  # becomes `/`
    tools: Path  # becomes TOOLS_DIR, read-only


def build_disk(
    directory: Path, *, hostname: str, gpu: GpuSetup, onstart: str = "", with_nvcc: bool = True
) -> InstanceDisk:
    """Make a new disk below `directory` (which must not hold one yet)."""
    disk = InstanceDisk(root=directory / "root", tools=directory / "tools")
    for name in DIRECTORIES:
        (disk.root / name).mkdir(parents=True, exist_ok=True)
    for name in STICKY:
        (disk.root / name).chmod(0o1777)
    (disk.root / "root").chmod(0o700)
    for name, text in _etc_files(hostname).items():
        (disk.root / "etc" / name).write_text(text)
    # The official images leave these behind for scripts that run on the machine.
    (disk.root / "root" / ".vast_containerlabel").write_text(f"{hostname}\n")
    if onstart:
        path = disk.root / "root" / "onstart.sh"
        path.write_text(onstart)
        path.chmod(0o755)
    write_tools(disk, gpu=gpu, with_nvcc=with_nvcc)
    return disk


def write_tools(
    disk: InstanceDisk, *, gpu: GpuSetup, with_nvcc: bool = True, workspace: str = "/workspace"
) -> None:
    """Write the scripts an instance sees in TOOLS_DIR, which it cannot change.

    `workspace` is where jobs work, as the instance sees it.
    """
    disk.tools.mkdir(parents=True, exist_ok=True)
    data = importlib.resources.files("vastd.simulator.hosts") / "data"
    for name in ("session", "init", "nvidia-smi", "nvcc"):
        if name == "nvcc" and not with_nvcc:
            continue
        _script(disk.tools / name, (data / f"{name}.sh").read_text())
    own_sftp = importlib.resources.files("vastd.simulator.hosts") / "sftp_stdio.py"
    (disk.tools / "sftp-server.py").write_text(own_sftp.read_text())
    interpreter = python_for_jobs()
    if interpreter is not None:
        start = f'#!/bin/sh\nexec {shlex.quote(str(interpreter))} "$@"\n'
        for name in ("python", "python3"):
            _script(disk.tools / name, start)
        _script(disk.tools / "pip", start.replace('"$@"', '-m pip "$@"'))
    cap = f"{gpu.compute_cap // COMPUTE_CAP_SCALE}.{gpu.compute_cap % COMPUTE_CAP_SCALE // 10}"
    values = {
        "GPU_NAME": gpu.name, "GPU_COUNT": gpu.count, "GPU_MEMORY_MIB": gpu.memory_mib,
        "GPU_DRIVER": gpu.driver_version, "GPU_CUDA": gpu.cuda_version, "GPU_COMPUTE_CAP": cap,
        "GPU_POWER_W": gpu.power_w, "GPU_ERROR": gpu.error, "GPU_SERIAL": "5a1ad0e5",
        "GPU_WORKSPACE": workspace,
    }  # fmt: skip
    lines = (f"{key}={shlex.quote(str(value))}\n" for key, value in values.items())
    (disk.tools / "gpu.env").write_text("".join(lines))


def _script(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def _etc_files(hostname: str) -> dict[str, str]:
    return {
        "passwd": "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/:/bin/false\n",
        "group": "root:x:0:\ntty:x:5:\nnogroup:x:65534:\n",
        "hostname": f"{hostname}\n",
        "hosts": f"127.0.0.1 localhost\n127.0.1.1 {hostname}\n::1 localhost\n",
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
        "profile": '[ -r ~/.bashrc ] && [ -n "$BASH" ] && . ~/.bashrc\n:\n',
        "bash.bashrc": "PS1='\\u@\\h:\\w# '\n",
        "environment": "",
    }


def python_for_jobs() -> Path | None:
    """Return the interpreter behind ours: instances run `python` with it.

    Not the virtualenv's: there a `pip install` could only write to the read-only environment,
    with the base interpreter it goes to the instance's own home.
    """
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    path = Path(sys.base_prefix) / "bin" / version
    return path if path.exists() else None


def python_prefixes(state_dir: Path) -> Iterator[Path]:
    """Yield the directories of our interpreter that an instance may read.

    A prefix that contains the user's home, or our state, is left out: binding it would show
    everything to the job. So is what `/usr` covers already.
    """
    private = [Path.home(), Path(pwd.getpwuid(os.getuid()).pw_dir), state_dir]
    seen: set[Path] = set()
    for prefix in (Path(sys.base_prefix).resolve(), Path(sys.prefix).resolve()):
        covers = any(
            place == prefix or prefix in place.parents for place in map(Path.resolve, private)
        )
        if not covers and Path("/usr") not in (prefix, *prefix.parents) and prefix not in seen:
            seen.add(prefix)
            yield prefix


def usr_links() -> Iterator[tuple[str, str]]:
    """Yield `(name, target)` of the host's top-level links into `/usr`, such as `bin`."""
    for name in USR_LINKS:
        path = Path("/", name)
        if path.is_symlink():
            yield name, str(path.readlink())


def usr_directories() -> Iterator[Path]:
    """Yield `/usr` and, on hosts that have not merged them, `/bin`, `/lib` and so on."""
    yield Path("/usr")
    for name in USR_LINKS:
        path = Path("/", name)
        if path.is_dir() and not path.is_symlink():
            yield path


def mend_mount_points(root: Path, targets: Iterable[str]) -> None:
    """Make the way to every target below `root` real directories, whatever a job left there.

    A link on the way to a mount point would let the next start create directories elsewhere.
    Must be called while nothing runs in the instance.
    """
    for target in (*DIRECTORIES, *targets):
        path = root
        for part in Path(target.lstrip("/")).parent.parts:
            path /= part
            _real_directory(path)
        path = root / target.lstrip("/")
        if path.is_symlink():
            path.unlink()
    for name in DIRECTORIES:
        _real_directory(root / name)
    for name, target in usr_links():
        path = root / name
        if not (path.is_symlink() and str(path.readlink()) == target):
            _remove(path)
            path.symlink_to(target)


def _real_directory(path: Path) -> None:
    if path.is_symlink() or not path.is_dir():
        _remove(path)
        path.mkdir()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
