"""Files a command writes: complete or not there, and never in the place of something else."""

import os
import stat
from collections.abc import Callable
from typing import TypeVar

from vastctl.errors import CliError, UsageError

T = TypeVar("T")
Write = Callable[[bytes], object]


def write_whole(path: str, write_all: Callable[[Write], T]) -> T:
    """Write a file through `write_all` and return what that returned; a link is followed.

    Raises:
        UsageError: a pipe, a device or a directory has that name: moving a file there would
            take its place.
        CliError: it cannot be written; what was there before still is.
    """
    try:
        target = _target(path)
        # A name of its own: one made of the target's may be too long, or be there already.
        beside = os.path.join(os.path.dirname(target), f".vastctl-{os.urandom(8).hex()}.part")
        # It tells commands, paths and money of its user: not for everybody on the machine.
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with open(descriptor, "wb") as file:
                made = write_all(file.write)
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, target)
        except BaseException:
            os.unlink(beside)
            raise
    except OSError as exc:
        raise CliError(
            f"cannot write {path!r}: {exc.strerror}", hint="nothing was left there"
        ) from exc
    return made


def _target(path: str) -> str:
    """Return where the file itself shall lie: a link stays one, and what it names is written."""
    try:
        # Before the name is resolved: `/dev/stdout` leads to names that are none.
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return os.path.realpath(path)
    if not stat.S_ISREG(mode):
        raise UsageError(
            f"{path!r} is {kind_of(mode)}, not a file that can be replaced",
            hint="name a file, or write to stdout with `--output -` and redirect that",
        )
    return os.path.realpath(path)


def kind_of(mode: int) -> str:
    """Return in words what has the mode `mode`."""
    kinds = (
        (stat.S_ISDIR, "a directory"),
        (stat.S_ISFIFO, "a pipe"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISCHR, "a device"),
        (stat.S_ISBLK, "a device"),
    )
    return next((word for fits, word in kinds if fits(mode)), "something else")
