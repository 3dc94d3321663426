"""The guard's scripts in a real shell, on a clock the test sets, against a Vast on loopback."""

import os
import signal
import subprocess
from pathlib import Path

import pytest
import trio

from support.guard_box import (
    DESTROY,
    KEY,
    LEASE_S,
    NOW,
    STOP,
    a_guard_box,
    command_lines,
    in_turn,
    terms,
)
from support.loopback_http import Arrived, http
from vastd.core.lease import OnExpiry
from vastd.jobs.guard import core_text, guard_text
from vastd.jobs.remote_shell import runner_text

pytestmark = pytest.mark.e2e

CALLERS = pytest.mark.parametrize("tool", ["curl", "wget", "python3"])
STUBBORN = "trap '' TERM; echo up; while :; do /bin/sleep 1; done"


@CALLERS
@pytest.mark.parametrize(("jobs", "expected"), [((), DESTROY), (("j1",), STOP)])
async def test_a_lease_that_ran_out_ends_the_machine_with_whatever_the_image_has(
    isolated_home: Path, tool: str, jobs: tuple[str, ...], expected: tuple[str, str, bytes]
) -> None:
    async with a_guard_box(isolated_home, tool) as box:
        box.mark(*jobs)
        box.start()
        await box.asleep()
        assert box.number("expiry") == NOW + LEASE_S
        assert await box.step(NOW + LEASE_S - 1) == []

        assert await box.step(NOW + LEASE_S) == [expected]

        headers = box.server.arrived[0].headers
        assert headers["authorization"] == f"Bearer {KEY}"
        assert headers["content-type"] == "application/json"


@CALLERS
async def test_the_key_is_in_no_list_of_processes_while_it_is_used(
    isolated_home: Path, tool: str
) -> None:
    shown: list[bytes] = []

    async def look(stream: trio.SocketStream, _: Arrived) -> None:
        shown.extend(command_lines())
        await stream.send_all(http(200, b"{}"))

    async with a_guard_box(isolated_home, tool, behaviour=look) as box:
        box.start()
        await box.asleep()
        await box.step(NOW + LEASE_S)

    assert any(b"guard_core" in line for line in shown)
    assert not [line for line in shown if KEY.encode() in line]


async def test_it_asks_until_vast_has_done_it(isolated_home: Path) -> None:
    async with a_guard_box(isolated_home, "curl", behaviour=in_turn(500, 429)) as box:
        box.mark("j1")
        box.start()
        await box.asleep()
        await box.step(NOW + LEASE_S)
        assert not (box.state / "over").exists()
        await box.step()
        assert not (box.state / "over").exists()

        assert await box.step() == [STOP] * 3
        assert (box.state / "over").exists()


async def test_a_renewal_is_read_back_and_moves_the_end_on_the_machines_own_clock(
    isolated_home: Path,
) -> None:
    theirs = NOW - 3000  # minutes off: only durations count
    async with a_guard_box(isolated_home, "curl") as box:
        box.set_clock(theirs)
        facts = box.hold(terms())
        await box.asleep()

        assert facts.unarmed(42, terms()) is None
        assert (facts.box_clock, facts.left_s, facts.box_hard) == (theirs, 900, theirs + 7200)
        assert (facts.tool, facts.guard_pid) == ("curl", box.number("pid"))
        assert await box.step(theirs + 899) == []
        box.hold(terms())
        assert await box.step(theirs + 899 + 899) == []
        assert await box.step(theirs + 899 + 900) == [DESTROY]


async def test_no_renewal_reaches_past_the_hard_limit(isolated_home: Path) -> None:
    async with a_guard_box(isolated_home, "curl") as box:
        facts = box.hold(terms(for_s=9000, hard_s=60))
        await box.asleep()

        assert facts.left_s == 60
        assert await box.step(NOW + 59) == []
        assert await box.step(NOW + 60) == [DESTROY]


@pytest.mark.parametrize(
    ("on_expiry", "expected"), [(OnExpiry.STOP_IF_UNCOLLECTED, STOP), (OnExpiry.DESTROY, DESTROY)]
)
async def test_what_is_not_home_decides_unless_it_is_to_be_destroyed_anyway(
    isolated_home: Path, on_expiry: OnExpiry, expected: tuple[str, str, bytes]
) -> None:
    async with a_guard_box(isolated_home, "curl") as box:
        facts = box.hold(terms(on_expiry=on_expiry, uncollected=("j1", "j2")))
        await box.asleep()

        assert facts.uncollected == ("j1", "j2")
        assert await box.step(NOW + 900) == [expected]


async def test_only_what_came_home_is_no_reason_any_more_to_keep_the_disk(
    isolated_home: Path,
) -> None:
    async with a_guard_box(isolated_home, "curl") as box:
        box.mark("j1", "j3")  # j3 began this moment: the renewal does not know of it yet
        facts = box.hold(terms(uncollected=("j2",), settled=("j1",)))

        assert facts.uncollected == ("j2", "j3")


async def test_a_container_that_was_started_again_has_a_lease_to_be_reached_in(
    isolated_home: Path,
) -> None:
    later = NOW + 50_000  # it stood still for long; its old lease is over
    async with a_guard_box(isolated_home, "curl") as box:
        box.hold(terms())
        await box.asleep()
        box.end_guard()
        box.set_clock(later)

        box.start()
        await box.asleep()

        assert (box.number("expiry"), box.number("hard")) == (later + LEASE_S, None)
        assert await box.step(later + LEASE_S - 1) == []


async def test_a_machine_that_was_stopped_at_the_end_of_its_lease_can_be_used_again(
    isolated_home: Path,
) -> None:
    async with a_guard_box(isolated_home, "curl") as box:
        box.mark("j1")
        box.start()
        await box.asleep()
        assert await box.step(NOW + LEASE_S) == [STOP]
        box.end_guard()  # Vast stops the container; somebody starts it again to fetch the results

        box.start()
        await box.asleep()

        assert await box.step(NOW + LEASE_S + 60) == [STOP]
        assert box.number("expiry") == NOW + LEASE_S + LEASE_S


async def test_a_container_that_restarts_before_its_end_is_through_has_no_new_lease(
    isolated_home: Path,
) -> None:
    async with a_guard_box(isolated_home, "curl", behaviour=in_turn(500)) as box:
        box.start()
        await box.asleep()
        assert await box.step(NOW + LEASE_S) == [DESTROY]
        box.end_guard()

        box.start()
        await box.asleep()

        assert box.asked == [DESTROY, DESTROY]


async def test_one_guard_is_enough_and_a_number_of_somebody_else_is_none(
    isolated_home: Path,
) -> None:
    async with a_guard_box(isolated_home, "curl") as box:
        (box.state / "pid").write_text(f"{os.getpid()}\n")
        first = box.start()
        await box.asleep()

        second = box.start()

        assert second.wait(20) == 0
        assert (first.poll(), box.number("pid")) == (None, first.pid)


async def test_an_upgraded_guard_takes_the_place_of_the_old_one(isolated_home: Path) -> None:
    async with a_guard_box(isolated_home, "curl") as box:
        old = box.start()
        await box.asleep()
        (box.state / "guard_core.sh").write_text("# an older version\n")

        facts = box.hold(terms())

        assert old.wait(20) == -signal.SIGTERM
        assert facts.guard_pid not in (None, old.pid)
        assert facts.unarmed(42, terms()) is None


@pytest.mark.parametrize(
    ("gone", "why"),
    [
        ("CONTAINER_API_KEY", "no key of its own"),
        ("CONTAINER_ID", "calls itself instance"),
        ("curl", "neither curl nor wget nor python"),
    ],
)
async def test_a_machine_that_could_not_end_itself_is_not_armed(
    isolated_home: Path, gone: str, why: str
) -> None:
    async with a_guard_box(isolated_home, "curl") as box:
        if gone in box.env:
            del box.env[gone]
        else:
            (box.bin / gone).unlink()

        told = box.hold(terms()).unarmed(42, terms())

        assert told is not None
        assert why in told


async def test_a_full_disk_does_not_keep_a_lease_from_being_renewed(isolated_home: Path) -> None:
    async with a_guard_box(isolated_home, "curl") as box:
        box.hold(terms())
        box.script("mv", "exit 1")  # nothing new can be put in place
        box.set_clock(NOW + 800)

        facts = box.hold(terms())

        assert facts.left_s == 900


async def test_a_job_may_save_before_its_machine_ends_and_the_users_last_command_sees_no_key(
    isolated_home: Path,
) -> None:
    async with a_guard_box(isolated_home, "curl") as box:
        job = box.job(
            "trap 'echo yes >saved; exit 143' TERM; echo up; while :; do /bin/sleep 0.05; done"
        )
        salvage = "cat saved >salvaged; env >seen"
        box.hold(terms(uncollected=("j1",), grace_s=3600, salvage=salvage))
        await box.asleep()
        box.set_clock(NOW + 900)
        os.write(box._go, b"\n")
        assert job.wait(20) == 143  # TERM came, and it had its time
        await box.asleep()
        if not box.asked:  # the guard had looked once more before the job was over
            await box.step()

        assert box.asked == [STOP]
        assert (box.project / "salvaged").read_text() == "yes\n"
        assert KEY not in (box.project / "seen").read_text()


async def test_a_job_that_does_not_end_is_killed_after_its_grace_and_not_before(
    isolated_home: Path,
) -> None:
    async with a_guard_box(isolated_home, "curl") as box:
        job = box.job(STUBBORN)
        box.hold(terms())
        await box.asleep()
        assert await box.step(NOW + 900) == []
        assert await box.step(NOW + 901) == []
        assert job.poll() is None

        assert await box.step(NOW + 902) == [DESTROY]
        assert job.wait(20) == -signal.SIGKILL


async def test_a_renewal_that_comes_during_the_grace_time_saves_the_machine(
    isolated_home: Path,
) -> None:
    async with a_guard_box(isolated_home, "curl") as box:
        job = box.job(STUBBORN)
        box.hold(terms())
        await box.asleep()
        await box.step(NOW + 900)

        box.hold(terms())

        assert await box.step(NOW + 902) == []
        assert job.wait(20) == -signal.SIGKILL
        assert not (box.state / "ending").exists()


@pytest.mark.parametrize("script", [core_text(), guard_text(), runner_text()])
def test_every_script_is_plain_shell(script: str) -> None:
    checked = subprocess.run(["/bin/sh", "-n"], input=script, text=True, check=False)

    assert checked.returncode == 0
