"""The simulator as a service: started, joined, used over SSH, ended, killed."""

import os
import signal
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx2
import msgspec
import pytest
import trio

from support.sim_hosts import SshClient, make_ssh_key, program_running, run_program
from vastd.errors import ConfigError
from vastd.simulator.announcement import ServiceInfo, info_path
from vastd.simulator.client import SimulatorClient, SimulatorUnreachable, join, join_or_spawn

pytestmark = [pytest.mark.e2e, pytest.mark.ssh]
LIMIT_S = 40.0
SCALE = 0.002  # a boot takes 0.2 s
Row = dict[str, object]


class Service:
    """A running service and what a renter does with it."""

    def __init__(self, info: ServiceInfo, state_dir: Path) -> None:
        self.info = info
        self.state_dir = state_dir
        self.control = SimulatorClient(info)
        self.identity = state_dir.parent / "id"

    async def vast(self, method: str, path: str, body: object = None, key: str = "") -> Row:
        headers = {"Authorization": f"Bearer {key or self.info.api_key}"}
        async with httpx2.AsyncClient(trust_env=False) as http:
            reply = await http.request(method, f"{self.info.url}{path}", headers=headers, json=body)
        return msgspec.json.decode(reply.content, type=dict[str, object])

    async def rent(self, **more: object) -> int:
        """Rent a machine with a direct port that accepts our key; return the instance id."""
        await self.vast("POST", "/api/v0/ssh/", {"ssh_key": make_ssh_key(self.identity)})
        filters = {"num_gpus": {"eq": 1}, "direct_port_count": {"gt": 0}}
        offers = (await self.vast("POST", "/api/v0/bundles/", filters))["offers"]
        assert isinstance(offers, list)
        body = {"image": "ubuntu:22.04", "disk": 10, "label": "job",
                "runtype": "ssh_direc ssh_proxy", **more}  # fmt: skip
        reply = await self.vast("PUT", f"/api/v0/asks/{offers[0]['id']}/", body)
        assert reply["success"] is True, reply
        return int(str(reply["new_contract"]))

    async def row(self, instance_id: int) -> Row | None:
        row = (await self.vast("GET", f"/api/v0/instances/{instance_id}/"))["instances"]
        assert row is None or isinstance(row, dict)
        return row

    async def wait_for(self, instance_id: int, state: str) -> None:
        await self.control.wait_for(instance_id, state, limit_s=LIMIT_S)

    async def ssh(self, instance_id: int, *, proxy: bool = False) -> SshClient:
        """Wait until sshd answers; return a client for the port the row names."""
        await self.wait_for(instance_id, "ssh")
        row = await self.row(instance_id)
        assert row is not None
        ports = row["ports"]
        assert isinstance(ports, dict)
        port = row["ssh_port"] if proxy else ports["22/tcp"][0]["HostPort"]
        return SshClient(self.identity, int(str(port)))


def owned_by(state_dir: Path) -> list[int]:
    """The processes that hold anything of a state directory open, or name it."""
    needle, found = str(state_dir).encode(), []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            named = needle in (entry / "cmdline").read_bytes()
            rooted = str(state_dir) in (entry / "mountinfo").read_text()
            if (named or rooted) and (entry / "exe").exists() and int(entry.name) != os.getpid():
                found.append(int(entry.name))
    return found


def read(path: str) -> bytes:
    return Path(path).read_bytes()


def pidfd(pid: int) -> int:
    return os.pidfd_open(pid)


async def wait_ended(descriptor: int) -> None:
    with trio.fail_after(LIMIT_S):
        await trio.lowlevel.wait_readable(descriptor)
    os.close(descriptor)


@asynccontextmanager
async def a_service(directory: Path, **options: object) -> AsyncIterator[Service]:
    state_dir = directory / "sim"
    info = await join_or_spawn(state_dir, scale=SCALE, **options)  # type: ignore[arg-type]
    descriptor = pidfd(info.pid)
    try:
        yield Service(info, state_dir)
    finally:
        with trio.CancelScope(shield=True):
            with suppress(ProcessLookupError):
                os.kill(info.pid, signal.SIGTERM)
            await wait_ended(descriptor)


@pytest.fixture
async def service(isolated_home: Path) -> AsyncIterator[Service]:
    async with a_service(isolated_home) as made:
        yield made


# -- starting and joining ----------------------------------------------------------------


async def test_who_come_together_share_one_service(isolated_home: Path) -> None:
    found: list[ServiceInfo] = []

    async def come() -> None:
        found.append(await join_or_spawn(isolated_home / "sim"))

    async with a_service(isolated_home), trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(come)

    assert len({info.pid for info in found}) == 1
    assert len({info.url for info in found}) == 1


async def test_a_cold_start_of_several_at_once_makes_one_service(isolated_home: Path) -> None:
    found: list[ServiceInfo] = []

    async def come() -> None:
        found.append(await join_or_spawn(isolated_home / "sim"))

    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(come)
    async with a_service(isolated_home):  # joins, and stops it
        starts = (isolated_home / "sim" / "starts").read_text()

    assert len({info.pid for info in found}) == 1
    assert starts == "1"


async def test_what_announces_it_is_private_and_gone_after_its_end(isolated_home: Path) -> None:
    async with a_service(isolated_home) as service:
        path = info_path(service.state_dir)
        modes = [stat.S_IMODE(p.stat().st_mode) for p in (path, service.state_dir / "api_key")]

    assert modes == [0o600, 0o600]
    assert not path.exists()
    assert await join(service.state_dir) is None


async def test_the_service_is_nobodys_child_and_leads_its_own_session(service: Service) -> None:
    fields = read(f"/proc/{service.info.pid}/stat").rpartition(b")")[2].split()
    parent, session = int(fields[1]), int(fields[3])

    assert parent != os.getpid()
    assert session != os.getsid(0)


async def test_a_second_service_in_the_same_directory_says_so_and_leaves(service: Service) -> None:
    done = await run_program(
        [sys.executable, "-m", "vastd.simulator", "--state-dir", str(service.state_dir)]
    )

    assert done.code == 75
    assert b"another simulator serves" in done.err
    assert await join(service.state_dir) == service.info


async def test_a_wrong_option_is_told_to_who_starts_it(isolated_home: Path) -> None:
    with pytest.raises(ConfigError, match="no fault is called 'nonsense'"):
        await join_or_spawn(isolated_home / "sim", faults=["nonsense"])


async def test_a_stale_announcement_is_not_believed(isolated_home: Path) -> None:
    state_dir = isolated_home / "sim"
    async with a_service(isolated_home) as service:
        stale = info_path(state_dir).read_bytes()
    info_path(state_dir).write_bytes(stale)

    async with a_service(isolated_home) as again:
        assert again.info.pid != service.info.pid
        assert again.info.api_key == service.info.api_key


async def test_ids_never_come_twice_from_one_directory(isolated_home: Path) -> None:
    async with a_service(isolated_home) as first:
        one = await first.rent()
    first.identity.unlink()
    async with a_service(isolated_home) as second:
        two = await second.rent()

    assert two > one


async def test_the_account_key_of_the_user_is_not_passed_on(
    isolated_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VAST_API_KEY", "the-real-one")

    async with a_service(isolated_home) as service:
        environment = read(f"/proc/{service.info.pid}/environ")

    assert b"the-real-one" not in environment


# -- renting -----------------------------------------------------------------------------


async def test_a_machine_is_rented_used_and_destroyed(service: Service) -> None:
    instance_id = await service.rent(onstart="env | grep _ >>/etc/environment; echo said")
    ssh = await service.ssh(instance_id)

    smi = await ssh.run("nvidia-smi --query-gpu=name --format=csv,noheader")
    await ssh.run(
        'python -c \'import os, urllib.request as u; r = u.Request(os.environ["VAST_URL"]'
        ' + "/api/v0/instances/" + os.environ["CONTAINER_ID"] + "/", headers={"Authorization":'
        ' "Bearer " + os.environ["CONTAINER_API_KEY"]}, method="DELETE"); print(u.urlopen(r).status)\''
    )

    await service.wait_for(instance_id, "gone")
    status = await service.control.status()
    journal = await service.control.journal()
    assert smi.code == 0
    assert b"NVIDIA" in smi.out
    assert status["live"] == []
    assert isinstance(journal["market"], list)
    assert [entry["kind"] for entry in journal["market"]] == ["add_key", "create", "destroy"]


async def test_both_ports_reach_the_machine_and_a_restart_changes_the_direct_one(
    service: Service,
) -> None:
    instance_id = await service.rent()
    direct, proxy = await service.ssh(instance_id), await service.ssh(instance_id, proxy=True)
    await direct.run("echo kept >/root/file")

    await service.vast("PUT", f"/api/v0/instances/{instance_id}/", {"state": "stopped"})

    await service.wait_for(instance_id, "down")
    assert (await direct.run("true")).code == 255
    await service.vast("PUT", f"/api/v0/instances/{instance_id}/", {"state": "running"})
    again = await service.ssh(instance_id)

    assert again.port != direct.port
    assert (await service.ssh(instance_id, proxy=True)).port == proxy.port
    assert (await again.run("cat /root/file")).out == b"kept\n"
    await service.vast("PUT", f"/api/v0/instances/recycle/{instance_id}/", {})
    fresh = await service.ssh(instance_id)
    assert (await fresh.run("cat /root/file")).code == 1


async def test_a_key_attached_later_works_within_the_same_run(service: Service) -> None:
    instance_id = await service.rent()
    ssh = await service.ssh(instance_id)
    other = service.state_dir.parent / "other"
    line = make_ssh_key(other)
    before = await SshClient(other, ssh.port).run("true")

    await service.vast("POST", f"/api/v0/instances/{instance_id}/ssh/", {"ssh_key": line})

    assert before.code == 255
    assert (await SshClient(other, ssh.port).run("true")).code == 0


async def test_the_log_of_the_container_can_be_fetched(service: Service) -> None:
    instance_id = await service.rent(onstart="echo first; echo second")
    ssh = await service.ssh(instance_id)
    await ssh.run("echo not-in-the-log")

    reply = await service.vast("PUT", f"/api/v0/instances/request_logs/{instance_id}/", {})

    async with httpx2.AsyncClient(trust_env=False) as http:
        log = await http.get(str(reply["result_url"]))
    assert log.text == "first\nsecond\n"


async def test_ordered_trouble_befalls_the_machine(isolated_home: Path) -> None:
    async with a_service(isolated_home, faults=["wrong_gpu"]) as service:
        ssh = await service.ssh(await service.rent())
        wrong = await ssh.run("nvidia-smi -L")

    assert wrong.out.startswith(b"GPU 0: NVIDIA GeForce RTX 3060 ")


async def test_a_cut_network_breaks_ssh_and_the_interface_for_a_while(service: Service) -> None:
    instance_id = await service.rent()
    ssh = await service.ssh(instance_id)
    async with program_running(ssh.argv("echo up; cat")) as session:
        assert session.stdout is not None
        await session.stdout.receive_some(8)

        await service.control.inject({"network_down_s": 3600.0})

        with trio.fail_after(LIMIT_S):
            await session.wait()
    assert session.returncode == 255
    assert (await ssh.run("true")).code == 255
    with pytest.raises(httpx2.HTTPError):
        await service.row(instance_id)
    await service.control.call("DELETE", "/sim/faults")
    assert (await ssh.run("true")).code == 0


# -- ending ------------------------------------------------------------------------------


async def test_a_stopped_service_leaves_no_process_and_no_disk(isolated_home: Path) -> None:
    async with a_service(isolated_home) as service:
        ssh = await service.ssh(await service.rent())
        await ssh.run("setsid sleep 1000 </dev/null >/dev/null 2>&1 &")
        assert len(owned_by(service.state_dir)) > 2

    assert owned_by(service.state_dir) == []
    assert list((service.state_dir / "instances").iterdir()) == []


async def test_a_killed_service_leaves_no_process(isolated_home: Path) -> None:
    async with a_service(isolated_home) as service:
        ssh = await service.ssh(await service.rent())
        await ssh.run("setsid sleep 1000 </dev/null >/dev/null 2>&1 &")
        watched = [pidfd(pid) for pid in owned_by(service.state_dir)]

        os.kill(service.info.pid, signal.SIGKILL)

        for descriptor in watched:
            await wait_ended(descriptor)
        assert owned_by(service.state_dir) == []
        assert await join(service.state_dir) is None


async def test_shutting_down_over_the_control_route_is_answered(isolated_home: Path) -> None:
    async with a_service(isolated_home) as service:
        descriptor = pidfd(service.info.pid)

        await service.control.shut_down()

        await wait_ended(descriptor)
        with pytest.raises(SimulatorUnreachable):
            await service.control.status()


async def test_an_idle_service_ends_by_itself(isolated_home: Path) -> None:
    info = await join_or_spawn(isolated_home / "sim", idle_s=0.2)

    await wait_ended(pidfd(info.pid))

    assert await join(isolated_home / "sim") is None
