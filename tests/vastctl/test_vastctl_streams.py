"""`vastctl` as a process whose surroundings are broken: no streams, full ones, no directory, Ctrl-C."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

RUN = [sys.executable, "-m", "vastctl.entry"]
ABSENT = 3  # no daemon listens there


def shell(text: str, place: Path, **changes: str) -> subprocess.CompletedProcess[str]:
    """Run a line of shell in which $V is vastctl; no daemon listens."""
    environment = {
        **os.environ, "VASTD_SOCKET": str(place / "none"), "VASTD_STATE_DIR": str(place),
        "V": " ".join(RUN), **changes,
    }  # fmt: skip
    return subprocess.run(
        ["bash", "-c", text], cwd=place, env=environment, capture_output=True, timeout=20,
        errors="replace", check=False,
    )  # fmt: skip


CANNOT = "error: cannot write the result to stdout: "


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("$V version <&-", 0, ""),
        ("$V ls <&-", ABSENT, "error: vastd is not running"),
        ("$V destroy x <&- 2>&1", ABSENT, ""),
        ("$V version >&-", 1, CANNOT + "Bad file descriptor"),
        ("$V --json version >&-", 1, "cannot write the result to stdout"),
        ("$V version 2>&-", 0, ""),
        ("$V ls 2>&-", ABSENT, ""),
        ("$V version >&- 2>&-", 1, ""),
        ("$V version <&- >&- 2>&-", 1, ""),
        ("$V version >/dev/full", 1, CANNOT + "No space left on device"),
        ("$V help >/dev/full", 1, CANNOT),
        ("$V completion bash >/dev/full", 1, CANNOT),
        ("$V version 2>/dev/full", 0, ""),
        ("$V ls >/dev/full 2>/dev/full", ABSENT, ""),
        ("$V _complete bash 1 vastctl >/dev/full", 1, ""),
        ("$V rpc x - <&-", 2, "error: the parameters are no JSON"),
        ("head -c 99 /dev/urandom | $V rpc x -", 2, "error: the parameters are no JSON"),
        ("$V rpc x - </dev/zero", 2, "error: the parameters on stdin are longer than"),
        ("printf '[%.0s' {1..99999} | $V rpc x -", 2, "error: the parameters are nested too deep"),
        ("$V rpc x $'\\xff'", 2, "error: the parameters are no JSON"),
        ("$V show $'\\xff'", 2, "error: an argument or name is not UTF-8 text"),
        ("mkdir gone; cd gone; rmdir ../gone; $V config path", 2, "error: the directory you are"),
        ("mkdir gone; cd gone; rmdir ../gone; $V ls", ABSENT, "error: vastd is not running"),
        ("mkdir gone; cd gone; rmdir ../gone; $V version", 0, ""),
    ],
)
def test_broken_surroundings_are_told_in_a_sentence(
    line: str, code: int, said: str, tmp_path: Path
) -> None:
    done = shell(line, tmp_path)

    assert done.returncode == code, done.stderr
    assert said in done.stderr
    for wrong in ("Traceback", "has a bug", "Exception ignored"):
        assert wrong not in done.stdout + done.stderr


@pytest.mark.parametrize("sink", ["| head -c 1", "2>&1 | true"])
@pytest.mark.parametrize("words", ["help", "--json version"])
def test_a_reader_that_leaves_is_no_news(words: str, sink: str, tmp_path: Path) -> None:
    done = shell(f"for n in 1 2; do $V {words}; done {sink}", tmp_path)

    assert (done.stderr, "Traceback" in done.stdout) == ("", False)


@pytest.mark.parametrize(
    "module",
    ["vastctl.__main__", "msgspec", "vastctl.client", "vastctl.commands.version", "socket"],
)
def test_an_interrupt_while_modules_are_imported_is_silent(module: str, tmp_path: Path) -> None:
    code = (
        "import importlib.abc, os, signal, sys\n"
        "class Finder(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {module!r}:\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from vastctl.entry import run\n"
        "sys.meta_path.insert(0, Finder())\n"
        f"sys.modules.pop({module!r}, None)\n"
        "sys.argv = ['vastctl', 'version']\n"
        "sys.exit(run())"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=20, check=False,
        env={**os.environ, "VASTD_SOCKET": str(tmp_path / "none")},
    )  # fmt: skip

    assert done.returncode in (130, -signal.SIGINT), done
    assert done.stderr == ""
