"""The door to all machines: shared connections, routes, reconnecting."""

import sys
from pathlib import Path

import pytest
import trio
from msgspec import structs

from ssh.sshd_rig import keygen, running_sshd, target
from vastd.core.market import Instance
from vastd.errors import SshAuthRejected, SshError, SshRefused
from vastd.jobs.boxes import open_boxes
from vastd.jobs.port import BoxTarget, Route

pytestmark = pytest.mark.ssh


async def closed_port() -> int:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port: int = listener.socket.getsockname()[1]
    await listener.aclose()
    return port


def by(**row: object) -> BoxTarget:
    return BoxTarget(rental_id="r-1", instance_id=42, instance=Instance(instance_id=42, **row))


@pytest.mark.req("SSH-13")
async def test_everybody_shares_one_connection_and_it_is_kept(sshd, boxes) -> None:
    async def use() -> None:
        async with boxes.open(sshd.target()) as box:
            assert (await box.run("echo x", timeout_s=10, limit_bytes=10)).stdout == b"x\n"

    async with trio.open_nursery() as nursery:
        for _ in range(20):  # more than one connection's sessions at a time
            nursery.start_soon(use)
    await use()

    assert sshd.accepted == 1


@pytest.mark.req("SSH-13")
async def test_a_forgotten_connection_is_closed_and_the_next_open_dials_again(sshd, boxes) -> None:
    async with boxes.open(sshd.target()) as box:
        await boxes.forget(42)
        with pytest.raises(SshError):
            await box.run("true", timeout_s=10, limit_bytes=10)
        await boxes.forget(42)

    async with boxes.open(sshd.target()) as box:
        assert (await box.run("true", timeout_s=10, limit_bytes=10)).exit_code == 0
    assert sshd.accepted == 2


@pytest.mark.req("SSH-12")
async def test_new_ports_mean_a_new_connection(sshd, boxes, tmp_path: Path) -> None:
    async with boxes.open(sshd.target()):
        pass
    (tmp_path / "moved").mkdir()
    async with running_sshd(tmp_path / "moved") as moved:
        moved.become(sshd)
        async with boxes.open(moved.target()):
            pass
        assert (sshd.accepted, moved.accepted) == (1, 1)
        await boxes.forget(42)


@pytest.mark.req("SSH-01")
async def test_the_proxy_is_tried_after_direct_and_first_once_it_has_worked(sshd, boxes) -> None:
    closed = await closed_port()
    target = by(
        public_ip="127.0.0.1", direct_ssh_port=closed, ssh_host="127.0.0.1", ssh_port=sshd.port
    )
    async with boxes.open(target) as box:
        assert (await box.probe()).route is Route.PROXY
        sshd.cut()
        with pytest.raises(SshError):
            await box.probe()
    # Were direct tried first again, this address would now answer before the proxy.
    both = by(
        public_ip="127.0.0.1", direct_ssh_port=sshd.port, ssh_host="127.0.0.1", ssh_port=sshd.port
    )
    async with boxes.open(both) as box:
        assert (await box.probe()).route is Route.PROXY


@pytest.mark.req("SSH-01")
async def test_the_way_that_worked_on_the_machine_before_is_first(sshd, boxes) -> None:
    both = by(
        public_ip="127.0.0.1", direct_ssh_port=sshd.port, ssh_host="127.0.0.1", ssh_port=sshd.port
    )
    async with boxes.open(structs.replace(both, first=Route.PROXY)) as box:
        assert (await box.probe()).route is Route.PROXY
    assert sshd.accepted == 1


async def test_when_no_way_leads_in_the_error_names_each(boxes) -> None:
    one, other = await closed_port(), await closed_port()
    nowhere = by(public_ip="127.0.0.1", direct_ssh_port=one, ssh_host="127.0.0.1", ssh_port=other)
    with pytest.raises(SshRefused) as caught:
        async with boxes.open(nowhere):
            pass
    assert str(one) in str(caught.value)
    assert str(other) in str(caught.value)


async def test_without_an_address_or_a_listener_it_is_refused_and_worth_a_retry(boxes) -> None:
    closed = await closed_port()
    for nowhere in (by(), target(closed)):
        with pytest.raises(SshRefused) as caught:
            async with boxes.open(nowhere):
                pass
        assert caught.value.retryable


@pytest.mark.req("SSH-07")
async def test_a_rejected_key_is_named_although_the_other_address_is_silent(
    sshd, tmp_path: Path
) -> None:
    keygen(tmp_path / "other")
    target = by(
        public_ip="127.0.0.1",
        direct_ssh_port=sshd.port,
        ssh_host="127.0.0.1",
        ssh_port=await closed_port(),
    )
    async with open_boxes(tmp_path / "state", tmp_path / "other", user=sshd.user) as boxes:
        with pytest.raises(SshAuthRejected):
            async with boxes.open(target):
                pass


async def test_the_ssh_library_is_not_loaded_before_the_first_dial(tmp_path: Path) -> None:
    script = (
        f"import sys; sys.path[:] = {sys.path!r}\n"
        "import trio, pathlib\n"
        "from vastd.jobs.boxes import open_boxes\n"
        "async def main():\n"
        f"    async with open_boxes(pathlib.Path({str(tmp_path)!r})) as boxes:\n"
        "        await trio.lowlevel.checkpoint()\n"
        "        print([m for m in ('asyncssh', 'trio_asyncio', 'cryptography') if m in sys.modules])\n"
        "trio.run(main)\n"
    )
    told = await trio.run_process([sys.executable, "-c", script], capture_stdout=True)

    assert told.stdout == b"[]\n"
