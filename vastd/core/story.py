"""Every event as one sentence for people, with its severity and its numbers for programs."""

from typing import Final

from msgspec import Struct, field

from vastd.core import billing
from vastd.core import events as ev
from vastd.core.alarms import Scalar
from vastd.core.instants import plural, rfc3339, shown, size, span
from vastd.core.job import Job
from vastd.core.money import show, show_rate, to_usd
from vastd.core.rental import Blame, Rental
from vastd.core.setup import steps
from vastd.core.spending import Admission


class Line(Struct, frozen=True, kw_only=True):
    """What happened, in a sentence; `severity` is `info`, `warning` or `error`."""

    text: str
    severity: str = "info"
    data: dict[str, Scalar] = field(default_factory=dict)


def tell(event: ev.Event) -> Line:
    """Return the sentence of `event`."""
    if isinstance(event, ev.DaemonEvent):
        return _of_daemon(event)
    return _of_rental(event) if isinstance(event, ev.RentalEvent) else _of_job(event)


def _of_daemon(event: ev.DaemonEvent) -> Line:
    match event:
        case ev.CapsChanged(changes=changes):
            said = [f"{key} from {_cap(old)} to {_cap(new)}" for key, (old, new) in changes.items()]
            data: dict[str, Scalar] = {key: new for key, (_, new) in changes.items()}
            return Line(text=f"spending caps changed: {', '.join(said)}", data=data)
        case ev.ClockJumped(jump=jump, by_s=by_s):
            words, severity = _JUMPS.get(jump, (jump, "warning"))
            way = "forward" if by_s > 0 else "back"
            text = words.format(span=span(by_s), way=way)
            return Line(text=text, severity=severity, data={"jump": jump, "by_s": by_s})
        case ev.HostBlocked(machine_id=machine_id, why=why, until=until):
            end = "until it is unblocked" if until is None else f"until {shown(until)}"
            text = f"machine {machine_id} is not rented {end}: {why}"
            return Line(text=text, data={"machine_id": machine_id})
        case ev.HostUnblocked(machine_id=machine_id):
            text = f"machine {machine_id} may be rented again"
            return Line(text=text, data={"machine_id": machine_id})
        case ev.NetworkLost(since=since):
            text = (
                f"your own network seems down since {shown(since)}: neither Vast nor any machine "
            )
            return Line(text=text + _LOST, severity="warning", data={"since": rfc3339(since)})
        case ev.NetworkBack(at=at, since=since):
            text = f"the network is back after {span(at - since)}; asking Vast before judging"
            return Line(text=text, data={"since": rfc3339(since)})
        case _:
            return Line(text=ev.kind(event).replace("_", " "))


_JUMPS: Final = {
    "slept": (
        "vastd did not run for {span} (a suspend, or it was stopped): asking Vast before judging",
        "info",
    ),
    "stepped": (
        (
            "the clock of this computer was set {way} by {span} while machines are on record: their "
            "limits go on by the time that really passes, and instants are told by the old clock"
        ),
        "warning",
    ),
    "believed": ("the clock of this computer was set {way} by {span}, and is believed", "info"),
    "missed": (
        (
            "{span} passed that this computer did not count (a paused virtual machine?), as Vast's "
            "clock shows: limits count them"
        ),
        "warning",
    ),
    "corrected": (
        "since vastd was started the clock of this computer was {span} off, as Vast's clock shows",
        "warning",
    ),
}
_LOST: Final = "answers; machines and jobs go on, deadlines hold, and nobody's silence counts"


def _cap(usd: float | None) -> str:
    return "off" if usd is None else f"${usd:g}"


def _of_rental(event: ev.RentalEvent) -> Line:
    match event:
        case ev.RentalPlanned(rental=rental, why=why, gate=gate):
            return _planned(rental, why, gate)
        case ev.RentalAdopted(rental=rental):
            return _adopted(rental)
        case ev.CreateSent(deadline_at=deadline):
            at = rfc3339(deadline)
            return Line(
                text=f"asking Vast for the machine; it ends by {shown(deadline)}",
                data={"deadline_at": at},
            )
        case ev.CreateConfirmed(instance_id=found):
            return Line(text=f"rented as instance {found}", data={"instance_id": found})
        case ev.CreateUnresolved(why=why):
            text = f"no answer to the create ({why}); looking for its label, never sending it again"
            return Line(text=text, severity="warning")
        case ev.CreateRefused(why=why):
            return Line(text=f"Vast refused: {why}", severity="warning")
        case ev.InstanceFound(instance_id=found):
            text = f"the listing shows it as instance {found}"
            return Line(text=text, data={"instance_id": found})
        case ev.InstanceRunning():
            return Line(text="the container runs; proving SSH and GPU")
        case ev.KeyAttached():
            return Line(text="attached our SSH key to the instance")
        case ev.BecameReady():
            return _ready(event)
        case ev.JobBegan(job_id=job_id):
            return Line(text=f"job {job_id} runs on it")
        case ev.JobLeft(job_id=job_id):
            return Line(text=f"job {job_id} ended; collecting")
        case ev.LeaseRenewed() | ev.LeaseAsked() | ev.Released():
            return _of_care(event)
        case ev.CollectVerified():
            return Line(text="what exists of the declared outputs is home and verified")
        case ev.CollectFailed(why=why):
            return Line(text=f"collecting failed, the machine is kept: {why}", severity="warning")
        case _:
            return _of_ending(event)


def _of_care(event: ev.LeaseRenewed | ev.LeaseAsked | ev.Released) -> Line:
    match event:
        case ev.LeaseRenewed(until=until):
            return Line(
                text=f"its guard ends it at {shown(until)} if vastd does not renew the lease"
            )
        case ev.LeaseAsked(until=until):
            return Line(text=f"its lease shall reach to {shown(until)}, as the user wanted")
        case ev.Released(why=why):
            text = f"let go of ({why}): it may exist and bill, and vastd does not watch it any more"
            return Line(text=text, severity="warning")


def _of_pause(
    event: ev.StopAsked | ev.StartAsked | ev.StartTried | ev.PolicyChanged,
) -> Line:
    match event:
        case ev.StopAsked(why=why):
            return Line(text=f"stopping it, its disk is kept: {why}")
        case ev.StartAsked():
            return Line(text="starting it again")
        case ev.StartTried(accepted=True):
            return Line(text="Vast accepted the start; it runs when its GPU is free")
        case ev.StartTried(error=error):
            return Line(text=f"start failed: {error}; trying again", severity="warning")
        case ev.PolicyChanged(changes=changes):
            said = [f"{key} from {old} to {new}" for key, (old, new) in changes.items()]
            data: dict[str, Scalar] = {key: new for key, (_, new) in changes.items()}
            return Line(text=f"its limits changed: {', '.join(said)}", data=data)


def _of_bid(event: ev.JobWentOn | ev.LeftOver | ev.BidChanged) -> Line:
    match event:
        case ev.JobWentOn(job_id=job_id):
            text = f"job {job_id} goes on on another machine; this disk is kept until it succeeded"
            return Line(text=text, severity="warning")
        case ev.LeftOver(job_id=job_id):
            return Line(text=f"results of job {job_id} are home: what it left here is not needed")
        case ev.BidChanged(bid=bid, before=before, lowest=lowest):
            wins = "" if lowest is None else f"; the lowest that wins is {show_rate(lowest)}"
            text = f"bids {show_rate(bid)} now, before {show_rate(before)}{wins}"
            return Line(text=text, data={"bid_usd": to_usd(bid)})


def _of_ending(event: ev.RentalEvent) -> Line:
    match event:
        case ev.StopAsked() | ev.StartAsked() | ev.StartTried() | ev.PolicyChanged():
            return _of_pause(event)
        case ev.InstanceStopped(why=why, asked=asked):
            grave = "info" if asked else "warning"
            return Line(text=f"the machine stopped: {why}", severity=grave)
        case ev.JobWentOn() | ev.LeftOver() | ev.BidChanged():
            return _of_bid(event)
        case ev.InstanceResumed():
            return Line(text="the machine runs again")
        case ev.EndDecided(trigger=trigger, why=why):
            grave = "info" if trigger in ("job_done", "user") else "warning"
            return Line(text=f"it ends ({trigger}): {why}", severity=grave)
        case ev.DestroyDecided(why=why):
            return Line(text=f"destroying it ({why})")
        case ev.DestroyTried(accepted=True):
            return Line(text="Vast accepted the destroy; proving that it is gone")
        case ev.DestroyTried(error=error):
            return Line(text=f"destroy failed: {error}; trying again", severity="warning")
        case ev.StopTried(accepted=True):
            return Line(text="Vast accepted the stop; its storage goes on billing")
        case ev.StopTried(error=error):
            return Line(text=f"stop failed: {error}; trying again", severity="warning")
        case ev.FoundAbsent(proof=proof):
            return Line(text=f"gone, billing has ended: {proof}")
        case ev.Resurfaced(instance_id=found):
            text = f"instance {found} exists although it was proven gone: ending it again"
            return Line(text=text, severity="error")
        case ev.BillingChanged(rate=rate, status=status):
            text = f"bills {show_rate(rate)}" + (f" while {status}" if status else "")
            return Line(text=text, data={"dph_usd": to_usd(rate)})
        case ev.Warned(watchdog=name, why=why):
            grave = "error" if name == "destroy_unconfirmed" else "warning"
            return Line(text=why, severity=grave, data={"watchdog": name})
        case ev.Quarantined(why=why):
            return Line(text=f"only ending is allowed now: {why}", severity="error")
        case _:
            return Line(text=ev.kind(event).replace("_", " "))


def _adopted(rental: Rental) -> Line:
    label = rental.adopted_label
    what = f"labelled {label!r}" if label else "with our claim"
    text = f"taken over: instance {rental.instance_id}, {what}"
    return Line(text=text, severity="warning", data={"instance_id": rental.instance_id})


def _planned(rental: Rental, why: str, gate: tuple[Admission, ...]) -> Line:
    offer = rental.order.offer
    what = f"{offer.num_gpus}x {offer.gpu_name} at {show_rate(billing.order_rate(rental.order))}"
    return Line(
        text="; ".join(filter(None, (f"chose offer {offer.offer_id}: {what}", why, _money(gate)))),
        data={
            "offer_id": offer.offer_id,
            "machine_id": offer.machine_id,
            "gpu_name": offer.gpu_name,
            "dph_usd": to_usd(offer.dph),
            **({"needs_usd": to_usd(max(use.needs for use in gate))} if gate else {}),
        },
    )


def _money(gate: tuple[Admission, ...]) -> str:
    """Return the numbers with which the gate let a machine through."""
    if not gate:
        return ""
    seen = [
        f"{use.cap} {show(use.limit)}, {show(use.spent)} spent, {show(use.reserved)} reserved"
        for use in gate
    ]
    return f"needs up to {show(max(use.needs for use in gate))} ({'; '.join(seen)})"


def _ready(event: ev.BecameReady) -> Line:
    return Line(
        text=f"ready: {event.gpu} by {event.route} SSH at {event.host}:{event.port}",
        data={
            "gpu": event.gpu,
            "host": event.host,
            "port": event.port,
            "route": event.route,
            "cuda_version": event.cuda_version,
            "driver_version": event.driver_version,
        },
    )


def _of_job(event: ev.JobEvent) -> Line:
    match event:
        case ev.JobSubmitted(job=job):
            return Line(text=_submitted(job)[:300])
        case ev.MachineAwaited(why=why):
            return Line(text=f"waits for money: {why}", severity="warning")
        case ev.JobPlaced(rental_id=rental_id):
            return Line(text=f"placed on {rental_id}", data={"rental_id": rental_id})
        case ev.AttemptFailed():
            return _attempt(event)
        case ev.JobInterrupted(why=why):
            return Line(text=f"interrupted: {why}", severity="warning")
        case ev.SyncBegan():
            return Line(text="sending the project")
        case ev.Synced(method="kept"):
            return Line(text="its project is on the machine already")
        case ev.Synced(files=files, bytes=count, secrets_kept=kept):
            text = f"project sent: {plural(files, 'file')}, {size(count)}"
            more = f"; {plural(kept, 'secret-looking file')} stayed home" if kept else ""
            return Line(text=text + more, data={"files": files, "bytes": count})
        case ev.JobStarted(pid=pid):
            return Line(text="started", data={"pid": pid})
        case ev.JobUnreachable(why=why):
            return Line(text=f"its state is unknown: {why}", severity="warning")
        case ev.JobReachable():
            return Line(text="the machine answers again; it still runs")
        case ev.CancelAsked():
            return Line(text="cancel asked")
        case ev.TermSent(why=why):
            return Line(text=f"asked to save and exit: {why}", severity="warning")
        case ev.JobFinished(state=state, why=why, exit_code=code):
            grave = "info" if state == "succeeded" else "warning"
            return Line(text=f"{state}: {why}", severity=grave, data={"exit_code": code})
        case ev.Collected():
            return _home(event)
        case ev.NotCollected(why=why, final=final):
            end = "results are NOT home" if final else "results are not home yet"
            return Line(text=f"{end}: {why}", severity="error" if final else "warning")
        case _:
            return Line(text=ev.kind(event).replace("_", " "))


def _attempt(event: ev.AttemptFailed) -> Line:
    """Return what a failed attempt cost and what follows from whose fault it was."""
    spent = "" if event.seconds is None else f", {span(event.seconds)}"
    if event.wasted is not None:
        spent += f", {show(event.wasted)} wasted"
    what = "could not serve it" if event.counts else "was gone before it was rented"
    after = {
        Blame.HOST: f"; machine {event.machine_id} is not rented again for a day",
        Blame.RUN: "; every other machine would fail in the same way",
    }.get(event.blame or Blame.NOBODY, "")
    return Line(
        text=f"{event.rental_id} {what} ({event.phase}{spent}): {event.why}{after}",
        severity="warning",
        data={
            "rental_id": event.rental_id,
            "machine_id": event.machine_id,
            "phase": event.phase,
            "seconds": event.seconds,
            "wasted_usd": None if event.wasted is None else to_usd(event.wasted),
        },
    )


def _submitted(job: Job) -> str:
    if job.setup is None:
        return f"submitted: {' '.join(job.command)}"
    return f"set-up asked: {'; '.join(steps(job.setup)) or 'nothing to install, checks only'}"


def _home(event: ev.Collected) -> Line:
    files, missing = event.files, event.missing
    text = f"results are home: {plural(files, 'file')}, {size(event.bytes)}, verified"
    if not files and not missing:
        text = "there was nothing to bring home"
    more = f"; not there: {', '.join(missing)}" if missing else ""
    return Line(
        text=(text + more)[:500],
        severity="warning" if missing else "info",
        data={"files": files, "bytes": event.bytes},
    )
