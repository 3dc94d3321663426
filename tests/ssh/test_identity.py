"""Which key we log in with."""

import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from vastd.errors import ConfigError
from vastd.ssh.identity import load_identity, resolve_identity


def write_key(path: Path, passphrase: bytes | None = None) -> str:
    """Write a key, in PEM if it has a passphrase, and return its public half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    key = ed25519.Ed25519PrivateKey.generate()
    lock = (
        serialization.BestAvailableEncryption(passphrase)
        if passphrase
        else serialization.NoEncryption()
    )
    form = serialization.PrivateFormat.PKCS8 if passphrase else serialization.PrivateFormat.OpenSSH
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, lock))
    return public_half(key)


def public_half(key) -> str:
    return key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    ).decode()  # fmt: skip


def test_the_configured_key_wins_and_its_public_half_is_derived(tmp_path: Path) -> None:
    public = write_key(tmp_path / "mine")
    write_key(tmp_path / ".ssh" / "id_ed25519")
    (tmp_path / "mine.pub").write_text("ssh-ed25519 STALE nobody\n")

    found = resolve_identity(tmp_path / "state", tmp_path / "mine", home=tmp_path)

    assert found.private_path == tmp_path / "mine"
    assert found.public_line == f"{public} vastd"


def test_the_users_usual_key_comes_next(tmp_path: Path) -> None:
    public = write_key(tmp_path / ".ssh" / "id_ed25519")

    found = resolve_identity(tmp_path / "state", None, home=tmp_path)

    assert found.public_line == f"{public} vastd"
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("usual", ["none", "with a passphrase"])
def test_otherwise_our_own_key_is_made_once_and_is_private(tmp_path: Path, usual: str) -> None:
    if usual != "none":
        write_key(tmp_path / ".ssh" / "id_ed25519", b"secret")

    first = resolve_identity(tmp_path / "state", None, home=tmp_path)
    again = resolve_identity(tmp_path / "state", None, home=tmp_path)

    assert first == again
    assert first.private_path == tmp_path / "state" / "ssh" / "id_ed25519"
    assert first.private_path.stat().st_mode & 0o777 == 0o600
    assert first.private_path.parent.stat().st_mode & 0o777 == 0o700


def test_a_pem_key_is_as_good(tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    (tmp_path / "pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )

    assert load_identity(tmp_path / "pem").public_line == f"{public_half(key)} vastd"


@pytest.mark.parametrize("fault", ["missing", "passphrase", "garbage", "public half"])
def test_a_configured_key_that_cannot_be_used_is_a_config_error_with_a_remedy(
    tmp_path: Path, fault: str
) -> None:
    path = tmp_path / "key"
    if fault == "passphrase":
        write_key(path, b"secret")
    elif fault == "garbage":
        path.write_bytes(b"\x00garbage")
    elif fault == "public half":
        path.write_text("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGE x\n")

    with pytest.raises(ConfigError) as caught:
        resolve_identity(tmp_path / "state", path, home=tmp_path)

    assert str(path) in str(caught.value)
    assert caught.value.hint


@pytest.mark.ssh
def test_a_passphrase_on_openssh_s_own_format_is_named(tmp_path: Path) -> None:
    path = tmp_path / "key"
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", str(path)]
    subprocess.run(command, check=True)

    with pytest.raises(ConfigError, match="passphrase"):
        load_identity(path)
