"""What a client is told: jobs on a machine with others, another protocol, another Vast, labels."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support.builders import RATE, T0, a_done_job, a_job, a_rental
from support.offer_builders import an_offer
from vastd.config.load import load
from vastd.configuration import ConfigurationHolder
from vastd.core.job import Job, JobState, Needs
from vastd.core.labels import read_claim
from vastd.core.money import from_usd
from vastd.core.rental import Phase, Policy, Rental
from vastd.errors import PolicyRefused
from vastd.renting import planned, task_of
from vastd.rpc.errors import RpcError
from vastd.rpc.handlers.daemons import config_set, initialize
from vastd.rpc.handlers.jobs import _beside
from vastd.shell import Choice
from vastd_protocol.errors import ErrorCode
from vastd_protocol.methods.config import ConfigSetParams
from vastd_protocol.methods.daemon import ClientInfo, InitializeParams
from vastd_protocol.version import PROTOCOL_VERSION

NEW = a_job(JobState.QUEUED, job_id="j-new", name="new", outputs=["results/", "logs/"])


def beside(*others: Job) -> list[str]:
    """Return the warnings of `run --on` for `NEW` on a machine that has these jobs."""
    ledger = SimpleNamespace(jobs_of=lambda _rental_id: list(others))
    ctx: Any = SimpleNamespace(shell=SimpleNamespace(ledger=ledger))
    return _beside(ctx, NEW, a_rental(Phase.BUSY))


# -- run --on


def test_a_job_on_an_idle_machine_of_its_own_is_not_worth_a_word() -> None:
    assert beside() == []
    assert beside(a_done_job(outputs=["other/"])) == []


def test_a_job_is_told_whom_it_waits_for() -> None:
    first = a_job(job_id="j-1", name="train", outputs=["other/"])
    second = a_job(JobState.QUEUED, job_id="j-2", name="eval", outputs=["other/"])

    (one,) = beside(a_done_job(outputs=["other/"]), first)
    (two,) = beside(first, second)

    assert one == "waits on 'lab' until job j-1 (train), which is running, has ended"
    assert "j-1 (train), which is running, and 1 more has ended" in two


def test_a_job_is_told_of_the_newest_earlier_job_with_the_same_outputs() -> None:
    old = a_done_job(job_id="j-1", name="old", outputs=["results/"])
    newer = a_done_job(job_id="j-2", name="newer", outputs=["logs/", "else/"])

    (warning,) = beside(old, newer)

    assert warning.startswith("job j-2 (newer) writes logs/ on 'lab' too")
    assert "--output" in warning


def test_a_setup_is_nobody_to_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    setup: Any = SimpleNamespace(setup=object(), finished=False)

    assert beside(setup) == []


# -- labels


@pytest.mark.req("CFG-09")
@pytest.mark.parametrize(
    ("profile", "task_id", "label"),
    [
        ("arf", "t0003_probe", "lab/t0003_probe"),
        ("arf", None, "lab/train"),
        ("aris", "t0003_probe", "lab/train"),
        (None, "t0003_probe", "lab/train"),
    ],
)
def test_a_label_names_the_project_and_the_task_or_the_experiment(
    monkeypatch: pytest.MonkeyPatch, profile: str | None, task_id: str | None, label: str
) -> None:
    monkeypatch.setattr("vastd.renting.admit", lambda *_args, **_rest: ((), ""))
    job = a_job(needs=Needs(profile=profile), task_id=task_id)
    shell: Any = SimpleNamespace(
        wall_clock=lambda: T0, new_id=lambda _: "r00000001", owner8="abcdefgh"
    )
    choice = Choice(offer=an_offer(7, dph=RATE), image="i", disk_gb=50.0, hours=1.0)

    event = planned(
        shell, choice, Policy(max_dph=from_usd(9)), name="lab", project="/home/me/lab",
        task=task_of(job), purpose="job", profile=profile,
    )  # fmt: skip

    assert event.rental.label.split()[0] == label
    assert read_claim(event.rental.label) is not None


# -- another protocol


@pytest.mark.parametrize(
    ("protocol", "older", "remedy"),
    [
        (PROTOCOL_VERSION - 1, "client", "update editor"),
        (PROTOCOL_VERSION + 1, "daemon", "vastctl daemon stop"),
    ],
)
async def test_another_protocol_is_refused_with_both_versions_and_who_is_too_old(
    protocol: int, older: str, remedy: str
) -> None:
    ctx: Any = SimpleNamespace(info=SimpleNamespace(version="1.2.3"))
    client = ClientInfo(name="editor", version="9.8")

    with pytest.raises(RpcError) as raised:
        await initialize(ctx, InitializeParams(protocol_version=protocol, client=client))

    told = raised.value
    assert told.code == ErrorCode.VERSION_MISMATCH
    assert str(told) == (
        f"editor 9.8 speaks protocol {protocol}, this vastd 1.2.3 speaks {PROTOCOL_VERSION}: "
        f"the {older} is too old"
    )
    assert remedy in (told.hint or "")


# -- another Vast


def a_configured(tmp_path: Path, *live: Rental, simulated: bool = False) -> Any:
    return SimpleNamespace(
        shell=SimpleNamespace(ledger=SimpleNamespace(live=lambda: list(live))),
        info=SimpleNamespace(simulated=simulated),
        config=ConfigurationHolder(load(tmp_path / "config.toml", {}), {}),
    )


async def test_the_address_of_vast_cannot_change_while_something_is_rented(tmp_path: Path) -> None:
    ctx = a_configured(tmp_path, a_rental(), a_rental())
    wish = ConfigSetParams(key="vast.url", value="https://there.example")

    with pytest.raises(PolicyRefused, match="cannot change while 2 rentals are live"):
        await config_set(ctx, wish)

    assert not (tmp_path / "config.toml").exists()
    await config_set(ctx, ConfigSetParams(key="timing.settle_s", value=9))  # anything else may


@pytest.mark.parametrize(("live", "simulated"), [((), False), ((a_rental(),), True)])
async def test_it_may_when_nothing_is_rented_there(
    tmp_path: Path, live: tuple[Rental, ...], simulated: bool
) -> None:
    ctx = a_configured(tmp_path, *live, simulated=simulated)

    await config_set(ctx, ConfigSetParams(key="vast.url", value="https://there.example"))

    assert "there.example" in (tmp_path / "config.toml").read_text()
