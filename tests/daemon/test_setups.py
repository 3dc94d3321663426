"""A set-up on record: refused before anything runs, or carried out like a job, whatever dies."""

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from trio.testing import MockClock

from support.daemon_in_memory import OWNER8, Daemon, Lab
from vastd.core import events as ev
from vastd.core.job import JobState
from vastd.core.labels import make_label
from vastd.core.market import OfferQuery
from vastd.core.rental import Order, Phase, Policy, Rental
from vastd.core.setup import Setup
from vastd.errors import InvalidRequest, NotFound, PolicyRefused
from vastd.rpc.handlers import jobs
from vastd.rpc.handlers import setup as handlers
from vastd_protocol.methods import job as job_wire
from vastd_protocol.methods import rental as rental_wire
from vastd_protocol.methods.setup import SetupParams, SetupRef

pytestmark = pytest.mark.sim


@pytest.fixture
async def lab(autojump_clock: MockClock) -> AsyncIterator[Lab]:
    made = Lab()
    yield made
    made.close()


def a_context(daemon: Daemon) -> Any:
    """What the handlers here use of a context; views are reduced to their names."""
    return SimpleNamespace(
        shell=daemon.shell,
        show_job=lambda j: job_wire.JobView(
            job_id=j.job_id, name=j.name, command=j.command, state=j.state, reason=j.reason
        ),
        show_rental=lambda r: rental_wire.RentalView(
            rental_id=r.rental_id, name=r.name, phase=r.phase
        ),
    )


async def a_machine(daemon: Daemon, *, purpose: str = "interactive", name: str = "box") -> str:
    """Rent one and wait until it is ready; return its id."""
    offers = await daemon.shell.provider.search_offers(OfferQuery(disk_gb=50.0))
    offer = min(offers, key=lambda o: (o.dph, o.offer_id))
    now = daemon.shell.wall_clock()
    rental_id = daemon.shell.new_id("r")
    rental = Rental(
        rental_id=rental_id, name=name, label=make_label(OWNER8, rental_id, "x"),
        order=Order(offer=offer, image="sim/image", disk_gb=50.0), policy=Policy(),
        created_at=now, phase_since=now, purpose=purpose,
    )  # fmt: skip
    daemon.ledger.commit(ev.RentalPlanned(rental_id=rental_id, at=now, rental=rental))
    ready = frozenset({Phase.READY})
    await daemon.until(lambda: daemon.ledger.rental(rental_id).phase in ready, within_s=3600)
    return rental_id


def the_setup(daemon: Daemon) -> Setup:
    (job,) = daemon.ledger.jobs.values()
    assert job.setup is not None
    return job.setup


@pytest.mark.req("CLI-03")
async def test_a_set_up_survives_the_death_of_the_daemon_and_leaves_the_machine_ready(
    autojump_clock: MockClock, lab: Lab
) -> None:
    (lab.project / "requirements.txt").write_text("numpy\n")
    async with lab.boot() as daemon:
        rental_id = await a_machine(daemon)
        wish = SetupParams(project=str(lab.project), rental="box", request_id="once")
        begun = await handlers.run(a_context(daemon), wish)
        job_id = begun.job.job_id
        await daemon.until(
            lambda: daemon.ledger.job(job_id).state is JobState.RUNNING, within_s=600
        )
        daemon.kill()

    async with lab.boot() as daemon:
        again = await handlers.run(a_context(daemon), wish)
        await daemon.until(lambda: daemon.ledger.job(job_id).collected is True, within_s=600)

        assert again.job.job_id == job_id
        assert begun.steps == ["pip install -r requirements.txt"]
        assert daemon.ledger.job(job_id).state is JobState.SUCCEEDED
        assert daemon.ledger.rental(rental_id).phase is Phase.READY
        done = await handlers.get(a_context(daemon), SetupRef())
        assert (done.job.job_id, done.ok, done.log_end) == (job_id, True, None)
        texts = [s.event.job.setup for s in daemon.store.events_of(job_id=job_id)[:1]]  # type: ignore[union-attr]
        assert texts == [Setup(pip_phases=(("-r", "requirements.txt"),))]


async def test_what_is_declared_is_installed_in_that_order(
    autojump_clock: MockClock, lab: Lab
) -> None:
    (lab.project / "base.txt").write_text("# torch\nnumpy\n")
    (lab.project / "deps").mkdir()
    (lab.project / "deps/train.txt").write_text("-r gpu.txt  # nested\n-r gone.txt\n-r train.txt\n")
    (lab.project / "deps/gpu.txt").write_text("torch==2.6\n")
    async with lab.boot() as daemon:
        await a_machine(daemon)
        await handlers.run(
            a_context(daemon),
            SetupParams(
                project=str(lab.project), packages=["git", "libgl1=1.2-3"], limit_s=60,
                requirements=["base.txt", str(lab.project / "deps/train.txt")], rental="box",
            ),
        )  # fmt: skip

        assert the_setup(daemon) == Setup(
            system_packages=("git", "libgl1=1.2-3"),
            pip_phases=(("-r", "base.txt"), ("-r", "deps/train.txt")),
            torch=True,
            phase_limit_s=60,
        )


async def test_a_second_set_up_waits_for_what_runs_and_says_so(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        await a_machine(daemon)
        ctx = a_context(daemon)
        first = await handlers.run(ctx, SetupParams(project=str(lab.project), rental="box"))

        second = await handlers.run(ctx, SetupParams(project=str(lab.project), rental="box"))

        assert (first.steps, first.warnings) == ([], [])
        assert second.warnings == [f"job {first.job.job_id} (setup) has to end first"]
        assert second.job.name == "setup-2"


async def test_what_cannot_be_set_up_is_refused_before_anything_runs(
    autojump_clock: MockClock, lab: Lab
) -> None:
    (lab.project / ".env").write_text("KEY=x\n")
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"requirements": ["no.txt"]}, "no requirements file 'no.txt'"),
        ({"requirements": ["/etc/passwd"]}, "outside of the project"),
        ({"requirements": ["../state/owner"]}, "requirements file '../state/owner'"),
        ({"requirements": [".env"]}, "would not be on the machine"),
        ({"packages": ["git; rm -rf /"]}, "no package of apt-get"),
        ({"packages": ["--force-yes"]}, "no package of apt-get"),
        ({"packages": ["git"] * 201}, "at most 200"),
        ({"limit_s": 0.0}, "limit_s must be"),
        ({"limit_s": float("nan")}, "limit_s must be"),
        ({"project": "/no/such"}, "not an existing absolute directory"),
    ]
    async with lab.boot() as daemon:
        await a_machine(daemon)
        for fields, said in wrong:
            wish = SetupParams(**{"project": str(lab.project), "rental": "box", **fields})

            with pytest.raises(InvalidRequest, match=said):
                await handlers.run(a_context(daemon), wish)

        assert daemon.ledger.jobs == {}


async def test_a_machine_that_ends_with_its_job_is_not_set_up(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        await a_machine(daemon, purpose="job", name="other")
        ctx = a_context(daemon)

        with pytest.raises(PolicyRefused, match="ends with its job"):
            await handlers.run(ctx, SetupParams(project=str(lab.project), rental="other"))
        with pytest.raises(NotFound):
            await handlers.run(ctx, SetupParams(project=str(lab.project), rental="nobody"))
        with pytest.raises(NotFound, match="no set-up on record"):
            await handlers.get(ctx, SetupRef())


async def test_a_set_up_is_not_retried_as_if_it_were_a_job_that_rents(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        await a_machine(daemon)
        ctx = a_context(daemon)
        begun = await handlers.run(ctx, SetupParams(project=str(lab.project), rental="box"))
        job_id = begun.job.job_id
        await daemon.until(lambda: daemon.ledger.job(job_id).finished, within_s=600)

        with pytest.raises(InvalidRequest, match="set-up of a machine"):
            await jobs.retry(ctx, job_wire.JobRetryParams(job=job_id))
