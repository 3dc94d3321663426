"""A peer that vanished without a word (CASES 70): lost within the keepalive, its job unknown."""

from pathlib import Path

import pytest
import trio
from msgspec import structs

from ssh.sshd_rig import Sshd, running_relay
from ssh.sshd_rig import target as target_at
from support.builders import JOB_ID, RENTAL_ID, a_job, a_rental
from vastd.core.job import JobState
from vastd.core.limits import Limits
from vastd.core.rental import Phase
from vastd.effects.attend import attend
from vastd.env_files import EnvFiles
from vastd.jobs.boxes import open_boxes
from vastd.jobs.port import JobOrder
from vastd.ledger import Ledger
from vastd.local_logs import LocalLogs
from vastd.shell import Observations, Shell
from vastd.ssh.openssh import KEEPALIVE_COUNT
from vastd.store.store import opened

pytestmark = pytest.mark.ssh

KEEPALIVE_S = 0.2


@pytest.mark.req("SSH-11")
async def test_the_job_of_a_black_holed_machine_is_unknown_within_the_keepalive_and_never_failed(
    sshd: Sshd, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    state.mkdir()
    with opened(state) as store:
        rental = a_rental(Phase.BUSY, instance_id=42)
        store.write([], [rental], [a_job(JobState.UNKNOWN, rental_id=RENTAL_ID)])
        async with (
            running_relay(sshd.port) as relay,
            open_boxes(
                state, sshd.client_key, workspace=str(sshd.workspace), user=sshd.user,
                keepalive_s=KEEPALIVE_S, connect_timeout_s=0.5, login_timeout_s=0.5,
            ) as boxes,
        ):  # fmt: skip
            shell = a_shell(state, Ledger(store), boxes)
            where = target_at(relay.port)
            shell.observed.note(RENTAL_ID, instance=where.instance)
            async with boxes.open(structs.replace(where, rental_id=RENTAL_ID)) as box:
                await box.prepare()
                await box.start_job(JobOrder(job_id=JOB_ID, command=["sleep", "600"]))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(attend, shell, RENTAL_ID, JOB_ID)
                with trio.fail_after(20):
                    while shell.ledger.job(JOB_ID).state is not JobState.RUNNING:
                        await shell.ledger.wait_changed()
                relay.frozen = True
                frozen_at = trio.current_time()
                with trio.fail_after(60):
                    while shell.ledger.job(JOB_ID).state is not JobState.UNKNOWN:
                        await shell.ledger.wait_changed()
                silent_s = trio.current_time() - frozen_at
                nursery.cancel_scope.cancel()

            # A look every five seconds begins the silence; then the keepalive, and a slow computer.
            assert silent_s < 5.0 + KEEPALIVE_S * (KEEPALIVE_COUNT + 1) + 5.0
            assert shell.ledger.rental(RENTAL_ID).phase is Phase.BUSY
            relay.frozen = False


def a_shell(state: Path, ledger: Ledger, boxes: object) -> Shell:
    return Shell(
        ledger=ledger,
        provider=None,  # type: ignore[arg-type]  # nobody asks Vast here
        boxes=boxes,  # type: ignore[arg-type]
        observed=Observations(0.0),
        wall_clock=trio.current_time,
        limits=Limits(ssh_spacing_s=0.1),
        owner8="abcdefgh",
        new_id=str,
        choose=None,  # type: ignore[arg-type]
        logs=LocalLogs(state),
        envs=EnvFiles(state),
        state_dir=state,
    )
