"""A state directory on a file system of a few megabytes, in a mount namespace of its own.

Nothing is left behind: the mount ends with the process that holds the namespace.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

SIZE_MB: Final = 24  # three times the reserve
_HOLD: Final = """\
mount -t tmpfs -o size=%dm,mode=0700 none "$1" && ln -s "$2" "$1/simulator" && echo ready
exec sleep 3600
"""


class SmallDisk:
    """A directory with little room. `enter` goes before a command that shall see it."""

    def __init__(self, holder: int, seen_from_here: Path, *, root: bool) -> None:
        user = [] if root else ["-U", "--preserve-credentials"]
        self.enter = ["nsenter", "-t", str(holder), "-m", *user, "--"]
        self.path = seen_from_here

    def mount(self, directory: Path, how: str) -> None:
        """Mount it anew as `ro` or `rw`; nothing may be open for writing there."""
        words = [*self.enter, "mount", "-o", f"remount,{how}", str(directory)]
        subprocess.run(words, check=True, capture_output=True)

    def fill(self, name: str = "filler") -> None:
        """Write until there is no room left, to the last byte."""
        block = 1 << 20
        with (self.path / name).open("wb", buffering=0) as file:
            while block:
                try:
                    file.write(bytes(block))
                except OSError:
                    block //= 2

    def free(self) -> None:
        """Take away what `fill` wrote."""
        for path in self.path.glob("filler*"):
            path.unlink()


@contextmanager
def small_disk(directory: Path, simulator: Path) -> Iterator[SmallDisk | None]:
    """Mount one on `directory` (its `simulator` lies elsewhere: that is another machine's disk);
    yield None where mounts are forbidden."""
    root = os.geteuid() == 0
    directory.mkdir()
    simulator.mkdir()
    held = subprocess.Popen(
        ["unshare", "-m" if root else "-Urm", "sh", "-c", _HOLD % SIZE_MB, "sh", directory, simulator],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        assert held.stdout is not None
        if held.stdout.readline() != "ready\n":
            yield None
            return
        yield SmallDisk(held.pid, Path(f"/proc/{held.pid}/root{directory}"), root=root)
    finally:
        held.kill()
        held.communicate()
