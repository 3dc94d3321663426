"""Where the socket, the configuration and the state live. Standard library only (CONTRACT 1).

One function each, used by both ends, so that client and daemon can never disagree. The
directories are those `platformdirs` gives for "vastd"; a test of the daemon compares them.
"""

import os
import stat
import sys
from pathlib import Path
from typing import Final

MAX_SOCKET_PATH_BYTES: Final = 104 if sys.platform == "darwin" else 107  # sun_path minus its NUL


def _home(variable: str, *fallback: str) -> Path:
    value = os.environ.get(variable, "")
    # The XDG specification says that relative values are invalid and must be ignored.
    if value.startswith("/"):
        return Path(value)
    return Path(os.path.expanduser("~"), *fallback)


def _named(variable: str) -> Path | None:
    """Return the absolute path a variable names, None if it is unset or empty."""
    value = os.environ.get(variable)
    # The daemon hands paths to processes with a working directory of their own.
    return Path(os.path.abspath(value)) if value else None


def config_file() -> Path:
    """Return `$VASTD_CONFIG`, else `config.toml` in the user's configuration directory."""
    if named := _named("VASTD_CONFIG"):
        return named
    if sys.platform == "darwin":
        return Path(os.path.expanduser("~/Library/Application Support/vastd/config.toml"))
    return _home("XDG_CONFIG_HOME", ".config") / "vastd" / "config.toml"


def state_dir() -> Path:
    """Return `$VASTD_STATE_DIR`, else the user's state directory for vastd."""
    if named := _named("VASTD_STATE_DIR"):
        return named
    if sys.platform == "darwin":
        return Path(os.path.expanduser("~/Library/Application Support/vastd"))
    return _home("XDG_STATE_HOME", ".local", "state") / "vastd"


def socket_candidates(state: Path | None = None) -> list[Path]:
    """Return every socket path a daemon of ours may listen on, best first, without repeats.

    `$VASTD_SOCKET` stands alone when set. With an explicit `$VASTD_STATE_DIR` the socket lies
    in that state directory first, so that two daemons with two states never share one socket.
    """
    if named := _named("VASTD_SOCKET"):
        return [named]
    own = (state or state_dir()) / "run" / "vastd.sock"
    found: list[Path] = []
    if os.environ.get("XDG_RUNTIME_DIR", "").startswith("/"):
        found.append(Path(os.environ["XDG_RUNTIME_DIR"], "vastd", "vastd.sock"))
    if hasattr(os, "getuid"):
        run_user = Path(f"/run/user/{os.getuid()}")
        if is_private_dir(run_user):
            found.append(run_user / "vastd" / "vastd.sock")
    explicit = state is not None or bool(os.environ.get("VASTD_STATE_DIR"))
    found.insert(0 if explicit else len(found), own)
    return list(dict.fromkeys(found))


def is_private_dir(path: Path) -> bool:
    """Return whether `path` is a directory of ours that nobody else may enter."""
    try:
        info = path.lstat()
    except OSError:
        return False
    return (
        stat.S_ISDIR(info.st_mode)
        and info.st_uid == os.getuid()
        and stat.S_IMODE(info.st_mode) & 0o077 == 0
    )


def too_long(path: Path) -> bool:
    """Return whether the operating system cannot bind a socket at `path`."""
    return len(os.fsencode(path)) > MAX_SOCKET_PATH_BYTES
