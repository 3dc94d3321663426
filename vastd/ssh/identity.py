"""Which private key we log in with, and its public half.

Order: the key named in the configuration, else `~/.ssh/id_ed25519`, else a key of our own in
the state directory, made on first use. Only a key without a passphrase can be used: nobody is
there to type one.
"""

import os
from pathlib import Path
from typing import Final

from msgspec import Struct

from vastd.errors import ConfigError

_MAX_KEY_BYTES: Final = 64 * 1024  # a 16384-bit RSA key has 13 kB; anything larger is no key


class Identity(Struct, frozen=True, kw_only=True):
    """A private key file and its public line (`TYPE BASE64 COMMENT`)."""

    private_path: Path
    public_line: str


def resolve_identity(
    state_dir: Path, configured: Path | None, home: Path | None = None
) -> Identity:
    """Return the identity to use, making our own key if there is no other.

    Raises:
        ConfigError: the configured key is missing, unreadable or has a passphrase.
    """
    if configured is not None:
        return load_identity(configured.expanduser())
    usual = (home if home is not None else Path.home()) / ".ssh" / "id_ed25519"
    if usual.is_file():
        try:
            return load_identity(usual)
        except ConfigError:
            # The user's everyday key may have a passphrase; ours does the same work without.
            pass
    own = state_dir / "ssh" / "id_ed25519"
    if not own.exists():
        _make_key(own)
    return load_identity(own)


def load_identity(path: Path) -> Identity:
    """Read a private key without passphrase and derive its public line.

    The public half comes from the private key itself: a stale `.pub` beside it would
    register a key that never opens a door.

    Raises:
        ConfigError: missing, unreadable, not a key, or it has a passphrase.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_KEY_BYTES)
    except OSError as exc:
        raise ConfigError(
            f"the ssh key {str(path)!r} could not be read: {exc.strerror}",
            hint="set defaults.ssh_key to a private key file, or remove it to use vastd's own",
        ) from exc
    return Identity(private_path=path, public_line=f"{_public_half(path, data)} vastd")


def _public_half(path: Path, data: bytes) -> str:
    # Imported here: the library costs memory that a daemon without rentals need not pay.
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        PublicFormat,
        load_pem_private_key,
        load_ssh_private_key,
    )

    load = load_ssh_private_key if b"BEGIN OPENSSH PRIVATE KEY" in data else load_pem_private_key
    try:
        key = load(data, None)  # raises TypeError when a passphrase is needed
        return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    except (TypeError, ValueError, UnsupportedAlgorithm, AttributeError) as exc:
        what = "it has a passphrase" if isinstance(exc, TypeError) else "it is no private key"
        raise ConfigError(
            f"the ssh key {str(path)!r} cannot be used: {what}",
            hint="vastd needs an unencrypted OpenSSH or PEM private key; "
            "make one with ssh-keygen -t ed25519 -N '' and name it in defaults.ssh_key",
        ) from exc


def _make_key(path: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    temporary = path.with_name(f"{path.name}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(private)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    path.with_name(f"{path.name}.pub").write_bytes(public + b" vastd\n")
