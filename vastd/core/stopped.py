"""Why a machine stands still that nobody here stopped: only evidence counts, and it is kept.

Rules
1. The lease comes first: that it ran out is known. Then an account without credit, which stops
   every machine, whatever else could explain it (CASES 28).
2. Only an interruptible machine is outbid, and only when its row shows one of the known patterns.
3. What nothing explains is called unknown, with what Vast said.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from vastd.core.bids import against, is_outbid
from vastd.core.lease import ran_out
from vastd.core.market import Instance, InstanceStatus
from vastd.core.money import Micros, show
from vastd.core.rental import Phase, Rental, StopCause
from vastd.core.statuses import Standing, standing

SAID_CHARS: Final = 200  # guess: of Vast's message, in a sentence
_RUNNING: Final = frozenset(
    {
        Phase.BOOTING,
        Phase.VERIFYING,
        Phase.READY,
        Phase.BUSY,
        Phase.COLLECTING,
        Phase.STOPPED,
    }
)
_DISK: Final = "its disk still exists and bills"


class Account(Struct, frozen=True, kw_only=True):
    """What a listing tells of all our machines together, and the credit read with it."""

    credit: Micros | None = None  # None: not known
    stopped_together: int = 0  # machines of ours that stand still in it, unasked
    of: int = 0  # machines of ours that could


class Stop(Struct, frozen=True, kw_only=True):
    """Why one machine stands still."""

    cause: StopCause
    why: str


def together(
    rentals: Iterable[Rental], mine: Mapping[str, Instance], credit: Micros | None
) -> Account:
    """Return what a listing tells of all machines; `mine`: rows by rental_id."""
    known = [(r, mine[r.rental_id]) for r in rentals if r.rental_id in mine and is_ours_to_run(r)]
    still = sum(1 for _, row in known if is_down(row))
    return Account(credit=credit, stopped_together=still, of=len(known))


def is_ours_to_run(rental: Rental) -> bool:
    """Return whether nobody here wants it to stand still, or gone."""
    return rental.phase in _RUNNING and rental.pause is None and rental.ending is None


def unasked(rentals: Iterable[Rental], rows: Iterable[Instance]) -> bool:
    """Return whether a machine stands still that nobody here stopped: then the credit is asked for."""
    down = {row.instance_id for row in rows if is_down(row)}
    return any(
        r.instance_id in down and is_ours_to_run(r) and r.phase is not Phase.STOPPED
        for r in rentals
    )


def is_down(row: Instance) -> bool:
    return standing(row.status, row.intended_status) is Standing.DOWN


def why_stopped(rental: Rental, row: Instance, account: Account, now: float) -> Stop:
    """Return why the machine of `row`, whose container does not run, stands still."""
    said = (row.status_msg or "").strip()[:SAID_CHARS]
    shown = f"Vast reports {row.status or 'nothing'}{f': {said}' if said else ''}"
    ended = rental.ending is not None and rental.stop_accepted
    if rental.pause is not None or ended:
        return Stop(cause=StopCause.ASKED, why=f"{shown}; {_DISK}")
    if (lease := ran_out(rental, now)) is not None:
        return Stop(cause=StopCause.LEASE, why=lease)
    if account.credit is not None and account.credit <= 0:
        why = f"{out_of_credit(account.credit)}; {_DISK}, below zero too"
        return Stop(cause=StopCause.CREDIT, why=why)
    if row.end_at is not None and row.end_at <= now:
        why = f"the contract of its host has ended: it cannot be started again; {_DISK}"
        return Stop(cause=StopCause.CONTRACT, why=why)
    if is_outbid(rental, row):
        return Stop(cause=StopCause.OUTBID, why=f"outbid: {against(rental, row)}; {_DISK}")
    if row.status == InstanceStatus.EXITED and row.intended_status == InstanceStatus.RUNNING:
        why = f"its main process ended, Vast still means it to run ({shown}); {_DISK}"
        return Stop(cause=StopCause.EXITED, why=why)
    return Stop(cause=StopCause.UNKNOWN, why=f"{shown}; {_DISK}{_together(account)}")


def out_of_credit(credit: Micros) -> str:
    """Return what stops every machine of an account, for a sentence."""
    return f"the account is out of credit ({show(credit)})"


def _together(account: Account) -> str:
    """Say what it looks like when nobody can say what it is."""
    alone = account.stopped_together < 2 or account.stopped_together < account.of
    if account.credit is not None or alone:
        return ""
    return (
        f"; all {account.of} machines stopped at once, so the account may be out of credit, "
        "which could not be read"
    )
