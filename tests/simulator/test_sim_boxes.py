"""Machines of the in-memory market as seen over SSH: connecting, jobs, results."""

import hashlib

import pytest
import trio

from support.sim_market import EPOCH, a_spec, an_offer_id
from vastd.errors import (
    HardwareMismatch,
    SshAuthRejected,
    SshClosed,
    SshHostKeyChanged,
    SshRefused,
    SshTimeout,
    TransferFailed,
    UnsafePath,
)
from vastd.jobs.port import (
    BoxJobState,
    BoxTarget,
    CollectOrder,
    JobOrder,
    ProjectSource,
    Route,
)
from vastd.simulator.boxes import SimBoxes
from vastd.simulator.faults import FaultKind, Faults, MachineFault, MachineFaultKind
from vastd.simulator.market import Market
from vastd.simulator.programs import LOG_LINE_BYTES
from vastd.simulator.provider import SimProvider

pytestmark = pytest.mark.sim

WORK = ["sim-job", "--seconds", "600", "--log-lines", "100", "--output", "results/a.txt:1000"]


def wall_clock():
    return EPOCH + trio.current_time()


def quiet(step, done, total, unit):
    """Progress that nobody looks at."""


class Scene:
    def __init__(self):
        self.market = Market(7, wall_clock)
        self.faults = Faults(wall_clock)
        self.provider = SimProvider(self.market, self.faults)
        self.boxes = SimBoxes(self.market, self.faults, wall_clock)
        self.market.add_ssh_key(self.boxes.public_key())

    async def rented(self, **shape):
        spec = a_spec(an_offer_id(self.market, **shape))
        self.instance_id = (await self.provider.create_instance(spec)).instance_id
        return self.market.contract(self.instance_id)

    async def booted(self, **shape):
        contract = await self.rented(**shape)
        await self.up(contract)
        return contract

    async def up(self, contract):
        while (at := contract.sshd_at()) is None or at > wall_clock():
            await trio.sleep(1)
            self.market.advance()

    def target(self):
        instance = self.market.instance(self.instance_id)
        return BoxTarget(rental_id="r-1", instance_id=self.instance_id, instance=instance)

    def open(self):
        return self.boxes.open(self.target())

    async def started(self, command=WORK, job_id="j-1", **order):
        async with self.open() as box:
            await box.start_job(JobOrder(job_id=job_id, command=list(command), **order))

    async def snapshot(self, job_id="j-1"):
        async with self.open() as box:
            return await box.job_snapshot(job_id)

    async def collected(self, tmp_path, *outputs, job_id="j-1"):
        order = CollectOrder(job_id=job_id, outputs=list(outputs), destination=tmp_path)
        async with self.open() as box:
            return await box.collect(order, quiet)


@pytest.fixture
async def scene():
    return Scene()


async def test_connecting_fails_until_the_container_and_then_sshd_are_up(autojump_clock, scene):
    contract = await scene.rented()
    with pytest.raises(SshRefused):
        async with scene.open():
            pass
    while not contract.is_up:
        await trio.sleep(0.1)
        scene.market.advance()
    assert contract.sshd_at() > wall_clock()
    with pytest.raises(SshRefused):
        async with scene.open():
            pass
    await scene.up(contract)

    async with scene.open() as box:
        facts = await box.probe()

    assert facts.route is Route.DIRECT
    assert facts.endpoint.port == scene.target().instance.direct_ssh_port


async def test_the_probe_shows_the_rented_cards_and_a_clock_of_its_own(autojump_clock, scene):
    contract = await scene.booted(gpu="RTX 3090", num_gpus=2)

    async with scene.open() as box:
        facts = await box.probe()

    assert [gpu.name for gpu in facts.gpus] == ["NVIDIA GeForce RTX 3090"] * 2
    assert facts.gpus[0].memory_mib == contract.machine.gpu_ram_mb
    assert facts.cuda_version == str(contract.machine.cuda_max_good)
    assert 0 < abs(facts.box_clock - wall_clock()) < 150


async def test_a_stale_port_falls_back_to_the_proxy(autojump_clock, scene):
    await scene.booted()
    old = scene.target()
    await scene.provider.stop_instance(scene.instance_id)
    await trio.sleep(60)
    await scene.provider.start_instance(scene.instance_id)
    await scene.up(scene.market.contract(scene.instance_id))

    async with scene.boxes.open(old) as box:
        facts = await box.probe()

    assert facts.route is Route.PROXY


async def test_an_open_connection_is_shared_until_forgotten(autojump_clock, scene):
    await scene.booted()
    async with scene.open() as one, scene.open() as two:
        await one.probe()
        await two.probe()
    async with scene.open():
        assert scene.boxes.opened == 1
    await scene.boxes.forget(scene.instance_id)
    async with scene.open():
        assert scene.boxes.opened == 2


@pytest.mark.parametrize("heals", [False, True])
async def test_a_rejected_key_may_be_healed_by_attaching_it(autojump_clock, scene, heals):
    scene.market.afflict(MachineFault(kind=MachineFaultKind.SSH_AUTH, healed_by_attach=heals))
    await scene.booted()
    with pytest.raises(SshAuthRejected):
        async with scene.open():
            pass

    await scene.provider.attach_ssh_key(scene.instance_id, scene.boxes.public_key())

    if heals:
        async with scene.open() as box:
            assert (await box.probe()).gpus
    else:
        with pytest.raises(SshAuthRejected):
            async with scene.open():
                pass


async def test_a_key_the_account_did_not_have_is_not_accepted(autojump_clock, scene):
    await scene.booted()
    stranger = SimBoxes(scene.market, scene.faults, wall_clock, identity="stranger")

    with pytest.raises(SshAuthRejected):
        async with stranger.open(scene.target()):
            pass


async def test_machine_faults_show_where_a_real_machine_would_show_them(autojump_clock, scene):
    for fault in (
        MachineFault(kind=MachineFaultKind.WRONG_GPU, gpu="NVIDIA GeForce GT 710"),
        MachineFault(kind=MachineFaultKind.SSH_REFUSED, after_s=60, for_s=60),
        MachineFault(kind=MachineFaultKind.DISK_FULL, after_s=60),
        MachineFault(kind=MachineFaultKind.BROKEN_GPU),
    ):
        scene.market.afflict(fault)
    contract = await scene.booted()
    with pytest.raises(HardwareMismatch):
        async with scene.open() as box:
            await box.probe()
    contract.trouble.broken_gpu = False
    async with scene.open() as box:
        facts = await box.probe()
    assert {gpu.name for gpu in facts.gpus} == {"NVIDIA GeForce GT 710"}

    await trio.sleep(contract.runs[0].start_at + 70 - wall_clock())
    await scene.boxes.forget(scene.instance_id)
    with pytest.raises(SshRefused):
        async with scene.open():
            pass
    await trio.sleep(60)
    async with scene.open() as box:
        assert (await box.probe()).disk_free_bytes == 0


# -- jobs --------------------------------------------------------------------------------


async def test_a_job_runs_its_time_and_exits(autojump_clock, scene):
    await scene.booted()
    await scene.started([*WORK, "--exit", "3"])
    early = await scene.snapshot()
    await trio.sleep(590)
    late = await scene.snapshot()
    await trio.sleep(20)
    done = await scene.snapshot()

    assert [s.state for s in (early, late, done)] == [
        BoxJobState.RUNNING,
        BoxJobState.RUNNING,
        BoxJobState.EXITED,
    ]
    assert (early.exit_code, done.exit_code) == (None, 3)
    assert done.box_ended_at - done.box_started_at == pytest.approx(600)
    assert done.log_bytes == 100 * LOG_LINE_BYTES
    assert early.gpu_util > 0
    assert done.gpu_util == 0


async def test_starting_twice_starts_once(autojump_clock, scene):
    await scene.booted()
    scene.faults.inject("box.start_job", FaultKind.LOSE_ANSWER)
    with pytest.raises(SshClosed):
        await scene.started()
    first = await scene.snapshot()
    await trio.sleep(100)

    await scene.started()

    assert first.state is BoxJobState.RUNNING
    assert (await scene.snapshot()).pid == first.pid
    assert len(scene.boxes.ledger()) == 1


async def test_a_lost_start_request_starts_nothing(autojump_clock, scene):
    await scene.booted()
    scene.faults.inject("box.start_job", FaultKind.LOSE_REQUEST)
    with pytest.raises(SshTimeout):
        await scene.started()

    assert (await scene.snapshot()).state is BoxJobState.ABSENT


async def test_a_job_survives_the_loss_of_the_connection_and_of_the_daemon(autojump_clock, scene):
    await scene.booted()
    await scene.started()
    now = wall_clock()
    scene.faults.cut_network(now + 10, now + 300)
    await trio.sleep(20)
    with pytest.raises(SshTimeout):
        await scene.snapshot()
    scene.boxes.cut()
    scene.boxes = scene.boxes.reborn()
    await trio.sleep(600)

    snapshot = await scene.snapshot()

    assert (snapshot.state, snapshot.exit_code) == (BoxJobState.EXITED, 0)


@pytest.mark.parametrize("how", ["stop", "reboot", "host_loss"])
async def test_a_job_dies_with_its_container_and_leaves_no_exit_code(
    autojump_clock, scene, how, tmp_path
):
    contract = await scene.booted()
    await scene.started()
    await trio.sleep(60)
    if how == "stop":
        await scene.provider.stop_instance(scene.instance_id)
        await trio.sleep(60)
        await scene.provider.start_instance(scene.instance_id)
    elif how == "reboot":
        scene.market.reboot(scene.instance_id)
    else:
        lost = MachineFault(kind=MachineFaultKind.HOST_LOSS, for_s=60)
        scene.market.afflict(lost, instance_id=scene.instance_id)
    await trio.sleep(1)
    await scene.up(contract)

    snapshot = await scene.snapshot()
    report = await scene.collected(tmp_path, "results/")

    assert (snapshot.state, snapshot.exit_code) == (BoxJobState.DIED, None)
    assert 0 < snapshot.log_bytes < 100 * LOG_LINE_BYTES
    assert (report.files, report.missing) == ([], ["results/"])


async def test_a_recycle_takes_job_and_files_away(autojump_clock, scene):
    contract = await scene.booted()
    await scene.started()
    scene.market.recycle(scene.instance_id)
    await trio.sleep(1)
    await scene.up(contract)

    assert (await scene.snapshot()).state is BoxJobState.ABSENT
    assert not scene.boxes.ledger()[0].disk_exists


async def test_a_connection_made_before_a_reboot_is_closed(autojump_clock, scene):
    contract = await scene.booted()
    async with scene.open() as box:
        scene.market.reboot(scene.instance_id)
        with pytest.raises(SshClosed):
            await box.probe()
        await scene.up(contract)
        with pytest.raises(SshClosed):
            await box.probe()
    async with scene.open() as box:
        assert (await box.probe()).gpus


async def test_an_idle_connection_does_not_outlive_a_reboot_nobody_looked_at(autojump_clock, scene):
    await scene.booted()
    async with scene.open() as box:
        scene.market.reboot(scene.instance_id)
        await trio.sleep(3600)
        with pytest.raises(SshClosed):
            await box.probe()
    async with scene.open():
        assert scene.boxes.opened == 2


async def test_a_lost_host_answers_nobody(autojump_clock, scene):
    await scene.booted()
    lost = MachineFault(kind=MachineFaultKind.HOST_LOSS)
    scene.market.afflict(lost, instance_id=scene.instance_id)

    with pytest.raises(SshTimeout):
        async with scene.open():
            pass


async def test_term_ends_a_job_after_its_grace_with_a_checkpoint(autojump_clock, scene, tmp_path):
    await scene.booted()
    await scene.started([*WORK, "--term-seconds", "5"])
    await trio.sleep(100)
    async with scene.open() as box:
        await box.signal_job("j-1", "TERM")
        await box.signal_job("j-1", "TERM")
        assert (await box.job_snapshot("j-1")).state is BoxJobState.RUNNING
        await trio.sleep(6)
        snapshot = await box.job_snapshot("j-1")

    report = await scene.collected(tmp_path, "results/")

    assert (snapshot.state, snapshot.exit_code) == (BoxJobState.EXITED, 143)
    assert [file.path for file in report.files] == ["results/checkpoint.bin"]


async def test_kill_ends_a_job_that_ignores_term(autojump_clock, scene):
    await scene.booted()
    await scene.started([*WORK, "--ignore-term"])
    await trio.sleep(10)
    async with scene.open() as box:
        await box.signal_job("j-1", "TERM")
        await trio.sleep(60)
        assert (await box.job_snapshot("j-1")).state is BoxJobState.RUNNING
        await box.signal_job("j-1", "KILL")
        snapshot = await box.job_snapshot("j-1")
        await box.signal_job("j-1", "TERM")
        await box.signal_job("no-such-job", "TERM")

    assert (snapshot.state, snapshot.exit_code) == (BoxJobState.EXITED, 137)


async def test_a_job_that_dies_leaves_no_exit_code(autojump_clock, scene):
    await scene.booted()
    await scene.started(["sim-job", "--seconds", "30", "--dies"])
    await trio.sleep(60)

    assert (await scene.snapshot()).state is BoxJobState.DIED


async def test_the_log_is_the_same_bytes_however_it_is_read(autojump_clock, scene):
    await scene.booted()
    await scene.started()
    await trio.sleep(700)
    async with scene.open() as box:
        whole = await box.read_log("j-1", 0, 1_000_000)
        pieces = b""
        while piece := await box.read_log("j-1", len(pieces), 333):
            pieces += piece

    assert pieces == whole
    assert len(whole) == 100 * LOG_LINE_BYTES
    assert whole.count(b"\n") == 100
    assert whole.startswith(b"step 1/100 loss ")


async def test_heartbeats_come_on_the_machines_clock_and_can_stop(autojump_clock, scene):
    await scene.booted()
    command = [*WORK, "--heartbeat-every", "60", "--heartbeats-stop", "200", "--nan-loss"]
    await scene.started(command, heartbeat_path="heartbeat.json")
    await trio.sleep(500)

    snapshot = await scene.snapshot()

    assert snapshot.box_heartbeat_at - snapshot.box_started_at == pytest.approx(180)
    assert (snapshot.heartbeat.step, snapshot.heartbeat.loss) == (3, None)


async def test_a_command_line_that_makes_no_sense_fails_as_a_program_would(autojump_clock, scene):
    await scene.booted()
    await scene.started(["sim-job", "--output", "/etc/passwd:9"])
    snapshot = await scene.snapshot()
    async with scene.open() as box:
        log = await box.read_log("j-1", 0, 1000)

    assert (snapshot.state, snapshot.exit_code) == (BoxJobState.EXITED, 2)
    assert b"not PATH:BYTES" in log


# -- files -------------------------------------------------------------------------------


async def test_results_come_home_as_real_files_with_true_checksums(autojump_clock, scene, tmp_path):
    await scene.booted()
    await scene.started([*WORK, "--output", "run.log:50"])
    await trio.sleep(700)

    report = await scene.collected(tmp_path, "results/", "*.log", "models/")

    assert sorted(file.path for file in report.files) == ["results/a.txt", "run.log"]
    assert report.missing == ["models/"]
    assert report.bytes == 1050
    for file in report.files:
        data = (tmp_path / file.path).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (file.bytes, file.sha256)
    record = scene.boxes.finished_jobs()[0]
    assert record.all_home
    assert record.collected.keys() == {"results/a.txt", "run.log"}


async def test_a_local_file_that_differs_is_kept_beside_the_new_one(
    autojump_clock, scene, tmp_path
):
    await scene.booted()
    await scene.started()
    await trio.sleep(700)
    (tmp_path / "results").mkdir()
    (tmp_path / "results/a.txt").write_text("mine")

    await scene.collected(tmp_path, "results/")
    await scene.collected(tmp_path, "results/")

    names = sorted(path.name for path in (tmp_path / "results").iterdir())
    assert names == ["a.txt", "a.txt.before-j-1"]
    assert (tmp_path / "results/a.txt.before-j-1").read_text() == "mine"


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        (FaultKind.DISK_FULL, TransferFailed),
        (FaultKind.TRUNCATED_PAGE, TransferFailed),
        (FaultKind.LOSE_REQUEST, SshTimeout),
        (FaultKind.LOSE_ANSWER, SshClosed),
    ],
)
async def test_a_failed_collection_counts_as_not_home_until_repeated(
    autojump_clock, scene, tmp_path, kind, error
):
    await scene.booted()
    await scene.started()
    await trio.sleep(700)
    scene.faults.inject("box.collect", kind)

    with pytest.raises(error):
        await scene.collected(tmp_path, "results/")
    assert not scene.boxes.finished_jobs()[0].all_home

    await scene.collected(tmp_path, "results/")
    assert scene.boxes.finished_jobs()[0].all_home


async def test_the_project_goes_there_without_what_stays_home(autojump_clock, scene, tmp_path):
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    for name in ("train.py", ".git/HEAD", ".env", "data.bin", "notes.pem"):
        (project / name).write_text(f"content of {name}")
    await scene.booted()
    source = ProjectSource(root=project, include=["notes.pem"], exclude=["*.bin"])
    steps = []

    async with scene.open() as box:
        await box.prepare()
        first = await box.push_project(source, lambda *step: steps.append(step))
        second = await box.push_project(source, quiet)
        there = await box.run("cat train.py", timeout_s=5, limit_bytes=100)
        missing = await box.run("cat .env", timeout_s=5, limit_bytes=100)

    assert (first.files, first.files_sent, first.secrets_kept) == (2, 2, [".env"])
    assert second.files_sent == 0
    assert there.stdout == b"content of train.py"
    assert missing.exit_code == 1
    assert steps[-1] == ("sync", first.bytes, first.bytes, "bytes")


async def test_pushed_files_can_be_pulled_back(autojump_clock, scene, tmp_path):
    (tmp_path / "out/sub").mkdir(parents=True)
    (tmp_path / "out/sub/a.txt").write_bytes(b"abc")
    await scene.booted()
    async with scene.open() as box:
        sent = await box.push_paths([tmp_path / "out"], "/workspace/extra", quiet)
        got = await box.pull_paths(["/workspace/extra/out"], tmp_path / "back", quiet)
        for unsafe in ("/", "/root", "/workspace/../root", "//", "relative"):
            with pytest.raises(UnsafePath):
                await box.push_paths([tmp_path / "out"], unsafe, quiet)
        with pytest.raises(TransferFailed):
            await box.pull_paths(["/workspace/nothing"], tmp_path, quiet)

    assert sent == got == 3
    assert (tmp_path / "back/out/sub/a.txt").read_bytes() == b"abc"


async def test_a_full_machine_takes_no_project_and_lets_jobs_fail(autojump_clock, scene, tmp_path):
    scene.market.afflict(MachineFault(kind=MachineFaultKind.DISK_FULL))
    await scene.booted()
    (tmp_path / "train.py").write_text("x")
    async with scene.open() as box:
        with pytest.raises(TransferFailed):
            await box.push_project(ProjectSource(root=tmp_path), quiet)
    await scene.started(["sim-job", "--seconds", "10"])
    await trio.sleep(30)

    assert (await scene.snapshot()).exit_code == 1


async def test_commands_answer_and_their_output_is_capped(autojump_clock, scene):
    await scene.booted()
    async with scene.open() as box:
        result = await box.run("echo " + "x" * 100, timeout_s=5, limit_bytes=10)
        unknown = await box.run("apt install vim", timeout_s=5, limit_bytes=100)
        smi = await box.run("nvidia-smi", timeout_s=5, limit_bytes=100)

    assert (result.exit_code, result.stdout, result.truncated) == (0, b"x" * 10, True)
    assert unknown.exit_code == 127
    assert b"RTX 4090" in smi.stdout


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        (FaultKind.HOST_KEY, SshHostKeyChanged),
        (FaultKind.AUTH_401, SshAuthRejected),
        (FaultKind.TIMEOUT, SshTimeout),
        (FaultKind.HTTP_500, SshRefused),
    ],
)
async def test_opening_faults_become_ssh_errors(autojump_clock, scene, kind, error):
    await scene.booted()
    scene.faults.inject("box.open", kind)

    with pytest.raises(error):
        async with scene.open():
            pass


async def test_the_ledger_tells_when_a_finished_job_was_lost(autojump_clock, scene):
    await scene.booted()
    await scene.started()
    await trio.sleep(700)
    await scene.provider.destroy_instance(scene.instance_id)
    await trio.sleep(60)

    record = scene.boxes.finished_jobs()[0]

    assert not record.all_home
    assert not record.disk_exists
    assert record.outputs.keys() == {"results/a.txt"}


def test_the_public_key_is_one_line_that_names_its_type():
    key = SimBoxes(Market(1, lambda: EPOCH), Faults(lambda: EPOCH), lambda: EPOCH).public_key()

    assert key.startswith("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI")
    assert "\n" not in key


async def test_the_listing_shows_busy_gpus_while_a_job_runs_and_no_longer(autojump_clock, scene):
    await scene.booted()
    await scene.started()
    await scene.started(["sim-job", "--seconds", "5"], job_id="j-2")
    seen = []
    for seconds in (10, 300, 400):
        await trio.sleep(seconds)
        # Zeros come on alternating polls, so two looks tell.
        looks = [scene.market.instance(scene.instance_id).gpu_util]
        await trio.sleep(1)
        looks.append(scene.market.instance(scene.instance_id).gpu_util)
        seen.append(max(looks) > 50)

    assert seen == [True, True, False]
