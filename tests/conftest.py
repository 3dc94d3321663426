"""What every test gets: an environment of its own, and a refusal of tests that prove nothing.

Rules
1. No test sees the user's home, keys, sockets or settings: `make test` beside a running vastd
   must never reach that daemon, let alone its machines.
2. Paths are short: an `AF_UNIX` address holds about 100 bytes, pytest's own directories don't fit.
3. A test without an assertion fails `tests/repo`.
"""

import itertools
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# Same examples on every desk: main is green or it is not. HYPOTHESIS_PROFILE=explore looks further.
settings.register_profile("steady", deadline=None, derandomize=True, max_examples=40)
settings.register_profile("explore", deadline=None, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))

# Whoever starts the tests in the background of a script passes an ignored SIGINT on to every
# program they start, and Ctrl-C could not be tested.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

FOREIGN_PREFIXES = ("VAST", "XDG_", "GIT_", "CONTAINER_")
FOREIGN_NAMES = (
    "SSH_AUTH_SOCK", "SSH_ASKPASS", "CREDENTIALS_DIRECTORY", "NOTIFY_SOCKET", "WATCHDOG_USEC",
    "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "INVOCATION_ID",
    "JOURNAL_STREAM", "DBUS_SESSION_BUS_ADDRESS", "PYTHONPATH", "TMUX", "NO_COLOR", "FORCE_COLOR",
)  # fmt: skip
XDG_HOMES = {
    "XDG_CONFIG_HOME": ".config",
    "XDG_STATE_HOME": ".local/state",
    "XDG_CACHE_HOME": ".cache",
    "XDG_DATA_HOME": ".local/share",
}

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def short_root() -> Iterator[Path]:
    """A directory with a short path, removed at the end of this worker."""
    root = Path(tempfile.mkdtemp(prefix="vt-", dir="/tmp"))  # $TMPDIR may be long
    yield root
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(autouse=True)
def isolated_home(short_root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the test a home of its own and return it; nothing in it exists yet but `run/`.

    `VASTD_SOCKET` is set because the fallback `/run/user/UID` cannot be moved by a variable;
    tests of the search order unset it.
    """
    home = short_root / str(next(_numbers))
    runtime = home / "run"
    runtime.mkdir(parents=True, mode=0o700)
    for name in list(os.environ):
        if name.startswith(FOREIGN_PREFIXES) or name in FOREIGN_NAMES:
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    for name, below in XDG_HOMES.items():
        monkeypatch.setenv(name, str(home / below))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    monkeypatch.setenv("VASTD_SOCKET", str(runtime / "vastd.sock"))
    return home
