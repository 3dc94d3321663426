"""Lost boots: by message, by status, by a higher bid; whose fault, and what is not lost."""

import pytest

from support.builders import T0, a_rental, a_row
from vastd.core import boot
from vastd.core.boot import MESSAGES, Fault, judge, meaning
from vastd.core.market import Instance
from vastd.core.money import Micros, from_usd
from vastd.core.observed import Sighting
from vastd.core.rental import Blame, Order, Phase, Rental, Trigger, blame_of

BID = from_usd(0.20)


def bidding(phase: Phase = Phase.BOOTING) -> Rental:
    order = Order(offer=a_rental().order.offer, image="i", disk_gb=5.0, bid=BID)
    return a_rental(phase, order=order)


def judged(row: Instance, rental: Rental | None = None, readings: int = 3) -> Fault | None:
    """What is made of a row that stood for so many readings."""
    held = rental or a_rental(Phase.BOOTING)
    seen = Sighting(instance=row, readings=readings, seen_begun_at=T0 + 60, status_moved_at=T0 + 20)
    return judge(held, held.phase, seen, row)


HOSTS = [
    "Error response from daemon: toomanyrequests: You have reached your pull rate limit.",
    "unauthenticated pull rate limit reached",
    "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.8, please update",
    "Error: GPU error, unable to start instance.",
    "write /var/lib/docker/tmp/GetImageBlob: no space left on device",
    "Error response from daemon: failed to create task: OCI runtime create failed: runc",
    'Get "https://registry-1.docker.io/v2/": net/http: TLS handshake timeout',
    "dial tcp: lookup registry-1.docker.io: no such host",
    "read tcp 10.0.0.2:443: connection reset by peer",
    "driver failed programming external connectivity: port is already allocated",
    "Error response from daemon: something of next year",
    "could not select device driver with capabilities: [[gpu]]",
]
RUNS = [
    "Error response from daemon: manifest for foo/bar:1 not found: manifest unknown",
    "Error response from daemon: pull access denied for foo/bar, repository does not exist or",
    "Error response from daemon: Head: unauthorized: incorrect username or password",
    "no matching manifest for linux/amd64 in the manifest list entries",
    "invalid reference format: repository name must be lowercase",
    "denied: requested access to the resource is denied",
]


@pytest.mark.parametrize("said", HOSTS)
def test_the_hosts_messages_blame_the_host_and_are_told(said: str) -> None:
    found = judged(a_row("created", status_msg=said))

    assert found is not None
    assert (found.trigger, found.blame) == (Trigger.BOOT_FAILED, Blame.HOST)
    assert said in found.why


@pytest.mark.parametrize("said", RUNS)
def test_the_messages_of_image_and_account_stop_the_run(said: str) -> None:
    found = judged(a_row("loading", status_msg=said))

    assert found is not None
    assert (found.trigger, found.blame) == (Trigger.BOOT_FAILED, Blame.RUN)
    assert said in found.why


@pytest.mark.parametrize("said", ["", "Pulling fs layer", "success, running a_b/ssh", "retrying"])
def test_other_messages_mean_nothing(said: str) -> None:
    assert meaning(said) is None
    assert judged(a_row("loading", status_msg=said)) is None


def test_each_row_of_the_table_can_be_reached() -> None:
    for row in MESSAGES:
        assert any(meaning(fragment) is row for fragment in row.fragments), row.what


def test_a_message_counts_only_when_it_stood_in_two_readings() -> None:
    row = a_row("loading", status_msg="manifest unknown")
    new = Sighting(instance=row, readings=9, seen_begun_at=T0 + 60, status_moved_at=T0 + 60)

    assert judged(row, readings=1) is None
    assert judge(a_rental(Phase.BOOTING), Phase.BOOTING, new, row) is None
    assert judged(row, readings=2) is not None


@pytest.mark.req("WAI-06")
@pytest.mark.parametrize("status", ["exited", "offline", "unknown"])
def test_what_never_becomes_running_is_the_hosts_fault(status: str) -> None:
    found = judged(a_row(status), readings=2)

    assert found is not None
    assert (found.trigger, found.blame) == (Trigger.BOOT_FAILED, Blame.HOST)


@pytest.mark.parametrize("row", [a_row("stopped"), a_row("loading", intended_status="stopped")])
def test_who_stopped_a_machine_before_it_ran_is_not_known(row: Instance) -> None:
    found = judged(row)

    assert found is not None
    assert (found.trigger, found.blame) == (Trigger.BOOT_FAILED, Blame.NOBODY)


STOPPED = {"cur_state": "stopped", "next_state": "stopped", "intended_status": "stopped"}
OUTBID = [
    a_row("stopped", is_bid=True, **STOPPED),  # (a)
    a_row(None, is_bid=True, **STOPPED),
    a_row("exited", is_bid=True),  # (b), (d): still meant to run
    a_row("stopped", is_bid=True),
    a_row("offline", is_bid=True, min_bid=Micros(BID + 1)),  # (c)
]


@pytest.mark.req("FAI-09")
@pytest.mark.parametrize("phase", [Phase.BOOTING, Phase.VERIFYING])
@pytest.mark.parametrize("row", OUTBID)
def test_every_known_pattern_of_being_outbid_is_seen_and_blames_nobody(
    row: Instance, phase: Phase
) -> None:
    found = judged(row, bidding(phase))

    assert found is not None
    assert (found.trigger, found.blame) == (Trigger.OUTBID, Blame.NOBODY)


@pytest.mark.parametrize("row", OUTBID)
def test_an_on_demand_machine_is_never_outbid(row: Instance) -> None:
    found = judged(a_row(row.status, intended_status=row.intended_status, is_bid=False))

    assert found is None or found.trigger is Trigger.BOOT_FAILED


def test_a_lost_host_whose_bid_still_wins_is_lost() -> None:
    found = judged(a_row("offline", is_bid=True, min_bid=BID), bidding())

    assert found is not None
    assert found.blame is Blame.HOST


def test_a_machine_being_proven_may_flicker_twice() -> None:
    proven = a_rental(Phase.VERIFYING)

    assert judged(a_row("exited"), proven, readings=2) is None
    assert judged(a_row("exited"), proven, readings=3) is not None
    assert judged(a_row("running", status_msg="error response from daemon"), proven) is None


def test_a_wrong_order_blames_nobody_and_needs_one_reading() -> None:
    found = boot.wrong_order(a_rental(Phase.BOOTING), a_row("loading", is_bid=True))

    assert found is not None
    assert found.blame is Blame.NOBODY
    assert judged(a_row("loading", is_bid=True), readings=1) == found


def test_every_trigger_has_somebody_or_nobody_to_blame() -> None:
    hosts = {Trigger.BOOT_OVERDUE, Trigger.BOOT_FAILED, Trigger.SSH_FAILED,
             Trigger.HARDWARE_MISMATCH}  # fmt: skip

    assert {trigger for trigger in Trigger if blame_of(trigger) is Blame.HOST} == hosts
    assert all(blame_of(t) is Blame.NOBODY for t in Trigger if t not in hosts)
