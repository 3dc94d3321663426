"""Which paths may be written: on the machine by a copy, at home by a collection.

Rules
1. A copy to `/` or `/root` breaks the permissions sshd insists on and locks everybody out
   (REQUIREMENTS SYN-05); system directories break the machine in other ways.
2. Paths are judged after normalising, and again by the machine after following links.
3. Names that come from a machine are data: one that climbs out is refused, never repaired.
"""

import posixpath
import re
from typing import Final

from vastd.errors import InvalidRequest, UnsafePath

_WHOLE_TREES: Final = (  # nothing below these is anybody's data
    "/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/run", "/sbin", "/sys",
)  # fmt: skip
_EXACT: Final = ("/", "/home", "/media", "/mnt", "/opt", "/root", "/srv", "/tmp", "/usr", "/var")
_JOB_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


def check_destination(path: str) -> str:
    """Return the normal form of an absolute remote directory one may copy into.

    Raises:
        UnsafePath: not absolute, unprintable, or a directory a copy would break.
    """
    if not path.startswith("/"):
        raise UnsafePath(
            f"the remote destination {path!r} is not an absolute path",
            hint="use a directory such as /workspace/data",
        )
    if any(not c.isprintable() for c in path):
        raise UnsafePath(f"the remote destination {path!r} has control characters in it")
    # POSIX lets two leading slashes mean something else; normpath keeps them.
    normal = "/" + posixpath.normpath(path).lstrip("/")
    inside = any(normal == tree or normal.startswith(tree + "/") for tree in _WHOLE_TREES)
    if normal in _EXACT or inside or ".ssh" in normal.split("/"):
        raise UnsafePath(
            f"refused to copy to {path!r} on the machine: it would break its system or its login",
            hint="use a directory of your own, such as /workspace/data",
        )
    return normal


def check_job_id(job_id: str) -> str:
    """Return `job_id` if it can be a file name, a tmux session and a shell word.

    Raises:
        InvalidRequest: it cannot.
    """
    if _JOB_ID.fullmatch(job_id) is None:
        raise InvalidRequest(
            f"the job id {job_id!r} cannot be used", hint="use letters, digits, - and _"
        )
    return job_id


def check_remote_name(name: bytes) -> bytes:
    """Return a relative path from a machine in normal form, if it stays where it belongs.

    Raises:
        UnsafePath: absolute, empty, or it climbs.
    """
    parts = [part for part in name.split(b"/") if part not in (b"", b".")]
    if name.startswith(b"/") or not parts or b".." in parts or b"\0" in name:
        raise UnsafePath(f"the machine names a file {name!r}, which does not stay in its directory")
    return b"/".join(parts)


def check_output(pattern: str) -> str:
    """Return an output path or glob in normal form, relative to the project directory.

    Raises:
        UnsafePath: absolute, empty, or it climbs out of the project.
    """
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    if pattern.startswith(("/", "~")) or not parts or ".." in parts or "\0" in pattern:
        raise UnsafePath(
            f"the output {pattern!r} does not lie in the project directory",
            hint="name a path or glob such as results/ or logs/*.json",
        )
    return "/".join(parts)
