"""The unit files of vastd: the shipped texts, made to fit this installation and this user.

Rules
1. The texts are the files of `systemd/` in the source tree; only marked lines are replaced.
2. A secret is never written: units are readable by everybody who may look into the home.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from vastctl.errors import CliError
from vastd_protocol import paths
from vastd_protocol.errors import ExitCode

SERVICE: Final = "vastd.service"
SOCKET: Final = "vastd.socket"
# What changes which files, socket and market a vastd uses. A service does not see the shell's.
CARRIED: Final = (
    "VASTD_STATE_DIR", "VASTD_CONFIG", "VASTD_SOCKET", "VAST_URL", "XDG_CONFIG_HOME",
    "XDG_STATE_HOME",
)  # fmt: skip
_PATHS: Final = frozenset(CARRIED) - {"VAST_URL"}
_SHIPPED: Final = Path(__file__).with_name("systemd")
_EXEC: Final = "ExecStart=%h/.local/bin/vastd"
_LISTEN: Final = "ListenStream=%t/vastd/vastd.sock"
_MODE: Final = 0o644  # as systemd's own files: the manager warns of an executable one


class UnitFile(Struct, frozen=True, kw_only=True):
    """One unit file as it is to be."""

    path: Path
    text: str
    before: str | None = None  # what is there now; None: nothing

    @property
    def state(self) -> str:
        """Return `new`, `changed` or `unchanged`."""
        if self.before is None:
            return "new"
        return "unchanged" if self.before == self.text else "changed"

    def write(self) -> None:
        """Put the file in its place, as a whole.

        Raises:
            CliError: the directory or the file cannot be written.
        """
        fresh = self.path.with_name(f".{self.path.name}.new")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            fresh.write_text(self.text)
            fresh.chmod(_MODE)
            fresh.replace(self.path)
        except OSError as exc:
            raise CliError(f"cannot write {self.path}: {exc.strerror}") from exc


def unit_dir() -> Path:
    """Return where a user's own units lie (systemd.unit(5))."""
    config = os.environ.get("XDG_CONFIG_HOME", "")
    base = config if config.startswith("/") else os.path.expanduser("~/.config")
    return Path(base, "systemd", "user")


def unit_files(command: Sequence[str], environ: Mapping[str, str]) -> list[UnitFile]:
    """Return both unit files for a vastd that is run by `command` with what `environ` says.

    Raises:
        CliError: a path cannot stand in a unit file, or is too long for a socket.
    """
    texts = {
        SERVICE: service_text(command, carried(environ)),
        SOCKET: socket_text(environ),
    }
    return [
        UnitFile(path=unit_dir() / name, text=text, before=_read(unit_dir() / name))
        for name, text in texts.items()
    ]


def carried(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables the service must get to use the same files as this shell."""
    found: dict[str, str] = {}
    for name in CARRIED:
        value = environ.get(name, "")
        if name.startswith("XDG_"):
            # The rules of XDG: relative is ignored. The default needs no line.
            below = {"XDG_CONFIG_HOME": "~/.config", "XDG_STATE_HOME": "~/.local/state"}[name]
            if not value.startswith("/") or value == os.path.expanduser(below):
                continue
        if value:
            found[name] = os.path.abspath(value) if name in _PATHS else value
    return found


def service_text(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return the service: runs `command` with `environment`."""
    words = [quoted(word, in_command=number > 0) for number, word in enumerate(command)]
    lines = [f"ExecStart={' '.join(words)}"]
    lines += [f"Environment={quoted(f'{name}={value}')}" for name, value in environment.items()]
    return _replaced(shipped(SERVICE), _EXEC, "\n".join(lines))


def socket_text(environ: Mapping[str, str]) -> str:
    """Return the socket: listens where clients with this environment look first."""
    if not (environ.get("VASTD_SOCKET") or environ.get("VASTD_STATE_DIR")):
        return shipped(SOCKET)
    place = paths.socket_candidates()[0]
    if paths.too_long(place):
        raise CliError(
            f"socket path {str(place)!r} is longer than the system allows",
            hint="set VASTD_SOCKET to a shorter path",
            exit_code=ExitCode.AUTH_OR_CONFIG,
        )
    return _replaced(shipped(SOCKET), _LISTEN, f"ListenStream={_plain(str(place))}")


def shipped(name: str) -> str:
    """Return a unit file as it is shipped."""
    return (_SHIPPED / name).read_text()


def quoted(text: str, *, in_command: bool = False) -> str:
    """Return `text` as one word of a unit file (systemd.syntax(7), systemd.service(5))."""
    body = _plain(text).replace("\\", "\\\\").replace('"', '\\"')
    if in_command:
        body = body.replace("$", "$$")
    plain = body == text and not any(char.isspace() or char in "'\";" for char in text)
    return body if plain and text else f'"{body}"'


def _plain(text: str) -> str:
    if not text.isprintable():
        raise CliError(
            f"{text!r} cannot stand in a unit file",
            hint="use paths without line breaks and control characters",
            exit_code=ExitCode.AUTH_OR_CONFIG,
        )
    return text.replace("%", "%%")


def _replaced(text: str, line: str, by: str) -> str:
    before, found, after = text.partition(f"\n{line}\n")
    assert found, f"the shipped unit has no line {line!r}"
    return f"{before}\n{by}\n{after}"


def _read(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace")
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise CliError(f"cannot read {path}: {exc.strerror}") from exc
