"""The command lines for the OpenSSH client and rsync."""

import shutil
import subprocess
from pathlib import Path

import pytest

from vastd.jobs.boxes import open_boxes
from vastd.jobs.port import Endpoint, Route
from vastd.ssh.identity import Identity
from vastd.ssh.openssh import rsync_shell, ssh_argv

ENDPOINT = Endpoint(host="203.0.113.7", port=40112, route=Route.DIRECT)


@pytest.mark.req("SSH-03")
@pytest.mark.req("SSH-04")
def test_every_session_names_one_key_one_port_and_the_instances_own_host_key() -> None:
    argv = ssh_argv(ENDPOINT, 42, Path("/s/id"), Path("/s/known_hosts/42"))

    options = {argv[n + 1] for n, word in enumerate(argv) if word == "-o"}
    assert argv[:3] == ["ssh", "-F", "none"]
    assert argv[-4:] == ["-p", "40112", "-l", "root"]
    assert {
        "IdentitiesOnly=yes", "IdentityAgent=none", 'IdentityFile="/s/id"', "BatchMode=yes",
        'UserKnownHostsFile="/s/known_hosts/42"', "HostKeyAlias=vastd-42",
        "StrictHostKeyChecking=yes", "ConnectTimeout=15", "ForwardAgent=no",
    } <= options  # fmt: skip


@pytest.mark.parametrize(("seconds", "said"), [(15, 15), (40.0, 40), (2.5, 3), (0.2, 1)])
def test_openssh_waits_as_long_as_configured_in_whole_seconds(seconds: float, said: int) -> None:
    argv = ssh_argv(ENDPOINT, 42, Path("/s/id"), Path("/s/known_hosts/42"), seconds)

    assert [w for w in argv if w.startswith("ConnectTimeout")] == [f"ConnectTimeout={said}"]


@pytest.mark.ssh
def test_openssh_itself_reads_odd_paths_as_they_are() -> None:
    ssh = shutil.which("ssh")
    assert ssh is not None
    argv = ssh_argv(ENDPOINT, 42, Path("/a b/100%h/id"), Path("/a b/known 100%h"))

    told = subprocess.run(
        [ssh, "-G", *argv[1:], ENDPOINT.host], capture_output=True, text=True, check=True
    ).stdout.splitlines()

    assert (
        "userknownhostsfile /a b/known 100%%h" in told
        or "userknownhostsfile /a b/known 100%h" in told
    )
    assert [line for line in told if line.startswith("identityfile ")] in (
        ["identityfile /a b/100%%h/id"], ["identityfile /a b/100%h/id"],
    )  # fmt: skip


def test_rsyncs_own_quoting_doubles_single_quotes() -> None:
    assert rsync_shell(["ssh", "-o", 'A="x y"', "it's"]) == "'ssh' '-o' 'A=\"x y\"' 'it''s'"


async def test_rsync_reaches_a_machine_with_the_limit_that_was_configured(tmp_path: Path) -> None:
    async with open_boxes(tmp_path, connect_timeout_s=41.0) as boxes:
        boxes._identity._found = Identity(private_path=tmp_path / "id", public_line="")

        assert "ConnectTimeout=41" in boxes.ssh_argv(ENDPOINT, 42)
