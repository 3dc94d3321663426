"""What asyncssh and the socket raise, translated into what one may conclude."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncssh

from vastd.errors import ConfigError, SshAuthRejected, SshClosed, SshTimeout


def read_key(path: Path) -> asyncssh.SSHKey:
    """Read the private key we log in with.

    Raises:
        ConfigError: it is gone or cannot be read any more.
    """
    try:
        return asyncssh.read_private_key(path)
    except (OSError, asyncssh.KeyImportError) as exc:
        raise ConfigError(
            f"the ssh key {str(path)!r} cannot be used: {exc}",
            hint="set defaults.ssh_key to a private key file without a passphrase",
        ) from exc


@contextmanager
def translated(where: str) -> Iterator[None]:
    """Turn what asyncssh and the socket raise into the class that says what to conclude."""
    try:
        yield
    except asyncssh.PermissionDenied as exc:
        raise SshAuthRejected(
            f"{where} does not accept our key",
            hint="attach the public key to the instance once, then recreate the instance",
        ) from exc
    except (asyncssh.Error, OSError, EOFError) as exc:
        text = reason(exc)
        # asyncssh has one class for a lost connection; only the keepalive names a silent peer.
        if isinstance(exc, asyncssh.ConnectionLost) and "keepalive" in text:
            raise SshTimeout(f"{where} stopped answering") from exc
        raise SshClosed(f"{where} closed the connection: {text}") from exc


def caused_by(error: BaseException, kind: type[OSError]) -> bool:
    """Look through trio's wrapping of one or several failed addresses."""
    if isinstance(error, BaseExceptionGroup):
        return any(caused_by(each, kind) for each in error.exceptions)
    cause = error.__cause__
    return isinstance(error, kind) or (cause is not None and caused_by(cause, kind))


def reason(error: BaseException) -> str:
    cause = error.__cause__
    if isinstance(error, OSError) and isinstance(cause, OSError):
        error = cause  # trio repeats the address in front of the reason
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return (str(error) or type(error).__name__).strip().lower()
