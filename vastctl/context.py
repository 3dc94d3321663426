"""What one command works with: its arguments, the screen, the client, the project, the clock."""

import os
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Sequence

from msgspec.json import encode

from vastctl.client import Client
from vastctl.errors import UsageError
from vastctl.screen import Screen


class Context:
    """Everything a command may use; made by `main`, replaced piece by piece in tests."""

    def __init__(
        self,
        args: Namespace,
        screen: Screen,
        client: Client,
        *,
        project: str | None = None,
        now: Callable[[], float] = time.time,
        stdin_tty: bool | None = None,
    ) -> None:
        self.args = args
        self.screen = screen
        self.client = client
        self.json: bool = args.json
        self.now = now
        self.lasting = True  # False in the demo: its vastd ends with it, and so does the job
        self._project = project
        self._stdin_tty = sys.stdin.isatty() if stdin_tty is None else stdin_tty

    @property
    def project(self) -> str:
        """The git root above the current directory, else that directory."""
        if self._project is None:
            self._project = project_root(_here())
        return self._project

    @property
    def interactive(self) -> bool:
        """Whether a question may be asked: people at both ends, and no program reading."""
        return self._stdin_tty and self.screen.err_tty and not self.json

    def emit(self, result: bytes) -> None:
        """Write a result as `--json` promises: one document on one line, otherwise unchanged."""
        if b"\n" in result:
            from msgspec.json import format as reformat

            result = reformat(result, indent=-1)
        self.screen.raw(result)

    def emit_own(self, value: object) -> None:
        """Write a document that is made here because no method answers it."""
        self.screen.raw(encode(value))

    def confirm(self, what: str, lines: Sequence[str] = ()) -> None:
        """Ask before something that cannot be undone; return if the answer is yes.

        Raises:
            UsageError: the answer is no, or nobody can be asked and `-y` is missing.
        """
        if self.args.yes:
            return
        if not self.interactive:
            raise UsageError(
                f"{what} needs a confirmation, and there is no terminal to ask on",
                hint="add `-y` if that is what you want",
            )
        if self.screen.ask(f"{what}? [y/N]", lines) not in ("y", "yes"):
            raise UsageError("not confirmed: nothing was done")


def _here() -> str:
    try:
        return os.getcwd()
    except OSError as exc:
        raise UsageError(
            f"the directory you are in cannot be used as a project: {exc.strerror}",
            hint="it was removed, or is not readable any more: `cd` to one that exists",
        ) from exc


def project_root(directory: str) -> str:
    """Return the nearest directory upwards that holds `.git`, else `directory` itself.

    The search ends below the home directory: some keep their settings in a repository there, and
    a home is no project.
    """
    current = os.path.abspath(directory)
    home = os.path.expanduser("~")
    while current != home:
        if os.path.exists(os.path.join(current, ".git")):
            return current
        above = os.path.dirname(current)
        if above == current:
            break
        current = above
    return os.path.abspath(directory)
