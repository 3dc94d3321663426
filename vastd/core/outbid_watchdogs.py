"""The watchdog of machines that were outbid: what the policy says, and for how long.

Rules
1. Nothing on demand is taken instead, and no bid is raised: both cost more than was agreed to.
2. Only machines rented for jobs are ended: the disk of a machine somebody works on himself may
   hold the only copy of his work, so its owner is told every day (CASES 16).
3. What was outbid runs again by itself when its bid wins: then its results come home.
"""

from typing import Final

from vastd.core.alarms import Alarm, Watch, Watchdog, end
from vastd.core.rental import OnOutbid, Phase, Policy, Rental, StopCause, Trigger


def waits(rental: Rental) -> bool:
    """Return whether it stands still because somebody bid more, and nobody decided anything yet."""
    return (
        rental.phase is Phase.STOPPED
        and rental.stopped_by is StopCause.OUTBID
        and rental.pause is None
        and rental.start_asked_at is None
    )


def outbid(watch: Watch) -> Alarm | None:
    """End a machine that was outbid: at once, or when it has waited long enough."""
    rental, policy = watch.rental, watch.rental.policy
    if not waits(rental) or rental.purpose != "job" or policy.keep:
        return None
    if policy.on_outbid is OnOutbid.RESUME:
        at = rental.phase_since + policy.outbid_wait_s
        why = f"{rental.stop_detail}; it waited {policy.outbid_wait_s:.0f} s to run again"
        return end(watch, at, Trigger.OUTBID, why)
    return end(watch, rental.phase_since, Trigger.OUTBID, rental.stop_detail or "outbid")


def _limit(policy: Policy) -> str:
    waits_s = policy.outbid_wait_s
    return (
        f"{waits_s:.0f} s"
        if policy.on_outbid is OnOutbid.RESUME
        else f"on_outbid={policy.on_outbid}"
    )


OUTBID_DOGS: Final = (
    Watchdog(
        name="outbid",
        check=outbid,
        watches="seconds since somebody bid more",
        limit=lambda w: _limit(w.rental.policy),
        action="collect when it runs again, destroy; its disk is kept until then",
    ),
)
