"""Host keys per instance id: the first is accepted, another refused."""

from pathlib import Path

import pytest

from vastd.errors import SshHostKeyChanged
from vastd.ssh.known_hosts import KnownHosts

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGE"
OTHER = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGX"


@pytest.fixture
def hosts(tmp_path: Path) -> KnownHosts:
    return KnownHosts(tmp_path / "known_hosts")


def test_the_first_key_is_on_record_in_the_form_openssh_reads(hosts: KnownHosts) -> None:
    hosts.accept(42, f"{KEY} comment\n")

    assert hosts.known_key(42) == KEY
    assert hosts.path(42).read_text() == f"vastd-42 {KEY}\n"
    assert hosts.path(42).stat().st_mode & 0o777 == 0o600


def test_a_repeat_changes_nothing_and_another_key_is_refused(hosts: KnownHosts) -> None:
    hosts.accept(42, KEY)
    hosts.accept(42, KEY)

    with pytest.raises(SshHostKeyChanged):
        hosts.accept(42, OTHER)

    assert hosts.known_key(42) == KEY
    hosts.accept(43, OTHER)


def test_a_forgotten_instance_may_show_another_key(hosts: KnownHosts) -> None:
    hosts.accept(42, KEY)
    hosts.forget(42)
    hosts.forget(42)

    assert hosts.known_key(42) is None
    hosts.accept(42, OTHER)


@pytest.mark.parametrize(
    "content", [b"", b"garbage", b"vastd-42 x", b"\xff\xfe\n", b"vastd-43 a b\n"]
)
def test_a_damaged_file_counts_as_never_seen(hosts: KnownHosts, content: bytes) -> None:
    hosts.path(42).parent.mkdir()
    hosts.path(42).write_bytes(content)

    assert hosts.known_key(42) is None
