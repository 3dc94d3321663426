"""`reconcile`, `adopt`, `release`: what a person reads, and is asked before anything is touched."""

from collections.abc import Callable
from typing import Any

from vastd_protocol.methods.reconcile import ReconcileView, StrangerView
from vastd_protocol.methods.rental import InventoryView

ORPHAN = StrangerView(
    instance_id=7, label="lab/x vastd-a1b2c3d4-r9", status="running", dph_usd=0.4, whose="orphan",
    owner="a1b2c3d4", started_at="2026-11-30T09:00:00Z", gpu_name="RTX_4090", num_gpus=2,
)  # fmt: skip
THEIRS = StrangerView(instance_id=8, whose="other_vastd", owner="oth00002", dph_usd=1.0)


def found(**changes: object) -> ReconcileView:
    fields: dict[str, object] = {
        "inventory": InventoryView(state="fresh", age_s=1.0, foreign=1, orphans=1),
        "orphans": [ORPHAN],
        "foreign": [THEIRS],
        "ours": 2,
        "ours_dph_usd": 0.6,
    }
    return ReconcileView(**{**fields, **changes})  # type: ignore[arg-type]


def test_reconcile_lists_whose_everything_is_and_changes_nothing(
    vastctl: Callable[..., Any], daemon: Any
) -> None:
    daemon.on("reconcile.run", found())

    ran = vastctl("reconcile")

    assert ran.code == 0
    assert ran.out.splitlines() == [
        "2 machines of this vastd, $0.600/h",
        "INSTANCE  WHOSE                         GPU          STATUS      PRICE    AGE  LABEL",
        (
            "7         orphan: our label, no rental  2x RTX_4090  running  $0.400/h  3h00m  "
            "lab/x vastd-a1b2c3d4-r9"
        ),
        "8         another vastd's (oth00002)    -            -        $1.000/h      -  -",
        (
            "an orphan bills and nobody watches it: `vastctl adopt INSTANCE` takes it over, "
            "`vastctl reconcile --destroy-orphans` ends it"
        ),
        "inventory: fresh, 1s old",
    ]
    assert daemon.asked("reconcile.run")[0].get("destroy_orphans", False) is False


def test_orphans_are_ended_only_after_a_yes(vastctl: Callable[..., Any], daemon: Any) -> None:
    daemon.on("reconcile.run", found())

    refused = vastctl("reconcile", "--destroy-orphans")

    assert refused.code == 2
    assert len(daemon.asked("reconcile.run")) == 1
    daemon.in_turn("reconcile.run", found(), found(orphans=[], ended=[7]))
    ran = vastctl("reconcile", "--destroy-orphans", "-y")
    assert ran.code == 0
    assert "ending 7: `vastctl ls` shows them" in ran.out
    assert daemon.asked("reconcile.run")[-1]["destroy_orphans"] is True


def test_an_account_that_is_not_known_is_no_success(
    vastctl: Callable[..., Any], daemon: Any
) -> None:
    unknown = InventoryView(state="unknown", error="Vast answered 410")
    daemon.on("reconcile.run", found(inventory=unknown, orphans=[], foreign=[]))

    ran = vastctl("reconcile")

    assert ran.code == 7
    assert "inventory: unknown: Vast answered 410" in ran.out


def test_adopt_asks_sends_limits_and_tells_when_it_ends(
    vastctl: Callable[..., Any], daemon: Any, make: Any
) -> None:
    daemon.on("rental.adopt", make.rental(name="box"))

    assert vastctl("adopt", "7").code == 2
    words = ("adopt", "7", "--name", "box", "--from", "oth00002", "--max-runtime", "2h", "-y")
    ran = vastctl(*words)

    assert ran.code == 0
    assert "box (r-1) is instance" in ran.out
    (wish,) = daemon.asked("rental.adopt")
    assert (wish["instance_id"], wish["name"], wish["from_owner"]) == (7, "box", "oth00002")
    assert wish["policy"]["max_runtime_s"] == 7200.0


def test_release_says_that_it_bills_on_and_asks(
    vastctl: Callable[..., Any], daemon: Any, make: Any
) -> None:
    daemon.on("rental.get", make.rental())
    daemon.on("rental.release", make.rental(phase="gone", end_reason="released"))

    assert vastctl("release", "r-1").code == 2
    assert vastctl("release", "r-1", "--force", "-y").code == 2  # no reason
    ran = vastctl("release", "r-1", "--force", "--reason", "moved", "-y")

    assert ran.code == 0
    assert "bills on, unwatched" in ran.out
    (wish,) = daemon.asked("rental.release")
    assert (wish["force"], wish["reason"]) == (True, "moved")
