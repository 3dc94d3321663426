"""Running the runner's functions on a machine, and telling their words from its noise.

Rules
1. Scripts and their arguments go in on standard input, so that nothing shows in `ps`.
2. An answer counts only between two lines that carry this call's random word: login banners
   and shell start-up files may print what they like.
3. Exit code 0 without those lines means that a login tmux swallowed the command (VAST_API 13);
   it is switched off once, through a terminal, and the call is repeated.
"""

import hashlib
import math
import secrets
import shlex
from importlib import resources
from typing import Final

import trio
from msgspec import Struct

from vastd.errors import RemoteCommandFailed
from vastd.ssh.port import CommandResult, SshConnection

_NOISE_BYTES: Final = 64 * 1024  # guess: room for banners before and after an answer
_CALL_TIMEOUT_S: Final = 60.0  # guess: two hanging nvidia-smi calls of 30 s each
_GRACE_S: Final = 1  # so that our own time-out comes first and names the command
_TERMINAL_TIMEOUT_S: Final = 10.0  # guess; the terminal only has to make one file
_QUOTED_BYTES: Final = 400  # how much of a machine's words goes into a message


def runner_text() -> str:
    """Return the on-box runner, as shipped with this version."""
    return resources.files("vastd.jobs").joinpath("runner.sh").read_text("utf-8")


class Answer(Struct, frozen=True, kw_only=True):
    """What a function printed, and how it ended."""

    exit_code: int
    body: bytes
    stderr: bytes


class RemoteShell:
    """Calls of one machine over one connection."""

    def __init__(self, connection: SshConnection, workspace: str, runner: str) -> None:
        self.connection = connection
        self.workspace = workspace
        self.runner = runner
        digest = hashlib.sha256(runner.encode()).hexdigest()[:12]
        # One file per version, so that an upgrade never edits a script that is running.
        self.runner_path = f"{workspace}/.vastd/runner-{digest}.sh"
        self._terminal_tried = False

    async def call(
        self,
        function: str,
        *arguments: str,
        timeout_s: float = _CALL_TIMEOUT_S,
        limit_bytes: int = 256 * 1024,
        library: str = "",
    ) -> bytes:
        """Run a function of the runner, or of `library` behind it, and return what it printed.

        Raises:
            RemoteCommandFailed: it ended with another code than 0, or commands do not run.
            SshError: the way broke.
        """
        nonce = secrets.token_hex(8)
        words = shlex.join(["vastd_framed", nonce, function, *arguments])
        script = f"{self.runner}\n{library}\n{words} </dev/null\n"
        command = bounded("exec /bin/sh -s", timeout_s)
        answer = await self._ask(command, script.encode(), nonce, timeout_s, limit_bytes)
        return _expect_success(answer, function)

    async def pipe(
        self,
        script: str,
        *arguments: str,
        stdin: bytes = b"",
        timeout_s: float = _CALL_TIMEOUT_S,
        limit_bytes: int = 256 * 1024,
    ) -> Answer:
        """Run a short script that reads `stdin`; its text and arguments are no secrets."""
        nonce = secrets.token_hex(8)
        framed = (
            f"printf '\\n@@vastd-begin {nonce}\\n'; ( {script} ); "
            f"printf '\\n@@vastd-end {nonce} %s\\n' \"$?\""
        )
        words = shlex.join(["exec", "/bin/sh", "-c", framed, "vastd", *arguments])
        command = bounded(words, timeout_s)
        return await self._ask(command, stdin, nonce, timeout_s, limit_bytes)

    async def install(self) -> None:
        """Make the workspace, put the runner there and switch the login tmux off."""
        await self.call("vastd_prepare", self.workspace)
        answer = await self.pipe(
            'cat >"$1.tmp.$$" && mv -f "$1.tmp.$$" "$1"',
            self.runner_path,
            stdin=self.runner.encode(),
        )
        _expect_success(answer, "installing the runner")

    async def _ask(
        self, command: str, stdin: bytes, nonce: str, timeout_s: float, limit_bytes: int
    ) -> Answer:
        limit = limit_bytes + _NOISE_BYTES
        result = await self.connection.run(
            command, stdin=stdin, timeout_s=timeout_s, limit_bytes=limit
        )
        answer = find_answer(result, nonce)
        if answer is None and not self._terminal_tried:
            self._terminal_tried = True
            await self._switch_off_login_tmux()
            result = await self.connection.run(
                command, stdin=stdin, timeout_s=timeout_s, limit_bytes=limit
            )
            answer = find_answer(result, nonce)
        if answer is None:
            raise RemoteCommandFailed(
                f"commands do not run on the machine: it answered {_quote(result)!r}",
                exit_code=result.exit_code,
                stderr=_text(result.stderr),
                hint="look at its login files; the image may replace the shell",
            )
        return answer

    async def _switch_off_login_tmux(self) -> None:
        """Make the marker file through a terminal, the one thing that gets past that tmux."""
        touch = b"touch ~/.no_auto_tmux"
        with trio.move_on_after(_TERMINAL_TIMEOUT_S):
            async with self.connection.open_process(touch.decode(), terminal=True) as process:
                # Should a tmux open instead of running the command, it is typed into it. `exec`
                # ends the shell in it, and with it the session.
                await process.send(b" " + touch + b"; exec true\n")
                while await process.receive(4096):
                    pass


def bounded(command: str, timeout_s: float) -> str:
    """Return a command that ends itself on the machine soon after we stopped waiting.

    Closing a channel does not end what runs in it, and sshd refuses to pass signals on for
    root (OpenSSH 9.2, session.c), which is what every Vast login is.
    """
    limit = str(max(1, math.ceil(timeout_s) + _GRACE_S))
    script = (
        "timeout -k 5 5 true >/dev/null 2>&1 && "
        'exec timeout -k 5 "$1" /bin/sh -c "$0"; exec /bin/sh -c "$0"'
    )
    return shlex.join(["exec", "/bin/sh", "-c", script, command, limit])


def find_answer(result: CommandResult, nonce: str) -> Answer | None:
    """Cut a framed answer out of what a command printed, or None if it is not there."""
    begin = f"\n@@vastd-begin {nonce}\n".encode()
    end = f"\n@@vastd-end {nonce} ".encode()
    start = result.stdout.find(begin)
    stop = result.stdout.rfind(end)
    if start < 0 or stop < start + len(begin) - 1:
        return None
    code, newline, _ = result.stdout[stop + len(end) :].partition(b"\n")
    if not newline or not code.isdigit():
        return None
    return Answer(
        exit_code=int(code),
        body=result.stdout[start + len(begin) : max(stop, start + len(begin))],
        stderr=result.stderr,
    )


def _expect_success(answer: Answer, what: str) -> bytes:
    if answer.exit_code != 0:
        raise RemoteCommandFailed(
            f"{what.removeprefix('vastd_')} failed on the machine: "
            f"{_text(answer.stderr) or _text(answer.body) or 'it said nothing'}",
            exit_code=answer.exit_code,
            stderr=_text(answer.stderr),
        )
    return answer.body


def _quote(result: CommandResult) -> str:
    return _text(result.stdout) or _text(result.stderr) or f"exit code {result.exit_code}"


def _text(data: bytes) -> str:
    """Return the end of what a machine said, without control characters."""
    text = data[-_QUOTED_BYTES:].decode(errors="replace")
    return "".join(c if c.isprintable() else " " for c in text).strip()
