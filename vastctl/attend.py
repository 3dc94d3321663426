"""Attending a job until it is settled: its story, its log, its end."""

from msgspec.json import encode

from vastctl import words
from vastctl.context import Context
from vastctl.errors import CliError, DaemonAbsent
from vastctl.follow import Followed, Follower, gone_while_following
from vastctl.story import Story, exit_code, tell_end
from vastd_protocol.errors import ExitCode
from vastd_protocol.methods import job as jobs
from vastd_protocol.methods import rental as rentals
from vastd_protocol.methods.job import JobSubmitView, JobView, JobWaitView

RESTART_S = 120.0  # guess; a daemon that replays its store and reconciles is back long before
ASK_PRICE_S = 2.0  # guess; Ctrl-C must not hang on a daemon that does


def attend(
    ctx: Context,
    submitted: JobSubmitView,
    *,
    after: int,
    kept: bool = False,
    pass_on: bool = False,
) -> int:
    """Follow a job to its settled end and tell it; return the exit code.

    Ctrl-C detaches: the job goes on. `after`: the newest event before it was submitted.
    `kept`: its machine is not meant to end.

    Raises:
        CliError: vastd did not come back, or `--timeout` is over.
    """
    job, rental_id = submitted.job, submitted.rental.rental_id
    told = rental_id if submitted.chosen else None
    settled = follow_job(ctx, job, rental_id, after=after, chosen=told)
    if settled is None:
        return _detached(ctx, submitted)
    return _end(ctx, *settled, kept, pass_on)


def follow_job(
    ctx: Context, job: JobView, rental_id: str | None, *, after: int, chosen: str | None = None
) -> tuple[bytes, JobWaitView] | None:
    """Tell a job's story and its log until it is settled; return that, raw and decoded.

    None when Ctrl-C detached from it. `chosen`: the rental whose offer was told already.

    Raises:
        CliError: vastd did not come back, or `--timeout` is over.
    """
    ctx.client.reconnect_s = RESTART_S
    rentals_told = [] if rental_id is None else [rental_id]
    story = Story(ctx.screen, log=not ctx.json, job=job.job_id, rentals=rentals_told, chosen=chosen)
    # The log is on stdout, and stdout is one JSON document with `--json`.
    followed = Followed(job=job.job_id, after=after, offset=None if ctx.json else 0)
    follower = Follower(ctx.client, story, followed)
    try:
        return _until_settled(ctx, follower, job)
    except DaemonAbsent as gone:
        raise gone_while_following(gone, job.job_id) from gone
    except KeyboardInterrupt:
        if not ctx.lasting:
            raise
        return None
    finally:
        if not ctx.json:
            ctx.screen.end_log()


def _until_settled(ctx: Context, follower: Follower, job: JobView) -> tuple[bytes, JobWaitView]:
    limit_s: float | None = ctx.args.timeout
    ctx.client.timeout_s = None  # from here on it bounds the whole, not each call
    wish = jobs.JobWaitParams(job=job.job_id, timeout_s=limit_s)
    # The daemon answers at its own limit; ours is for one that does not answer.
    body = follower.until_answer(
        jobs.WAIT.name, encode(wish), limit_s=None if limit_s is None else limit_s + 1
    )
    settled = None if body is None else ctx.client.view(jobs.WAIT, body)
    if body is None or settled is None or not settled.settled:
        raise _late(job, limit_s)
    follower.finish()
    return body, settled


def _end(ctx: Context, body: bytes, settled: JobWaitView, kept: bool, pass_on: bool) -> int:
    tell_end(ctx.screen, settled.job, settled.rental, log_stays=ctx.lasting)
    if ctx.json:
        ctx.emit(body)
    return exit_code(settled.job, settled.rental, kept=kept, pass_on=pass_on)


def _late(job: JobView, limit_s: float | None) -> CliError:
    within = "" if limit_s is None else f" within {limit_s:g} s"
    return CliError(
        f"job {job.job_id} was not settled{within}; it goes on",
        hint=f"follow it with `vastctl logs -f {job.job_id}`, end it with `vastctl job cancel {job.job_id}`",
        exit_code=ExitCode.TIMED_OUT,
    )


def _detached(ctx: Context, submitted: JobSubmitView) -> int:
    job = submitted.job
    offered = submitted.chosen.dph_usd if submitted.chosen else submitted.rental.dph_usd
    price = _price(ctx, job) or offered
    cost = "" if price is None else f" and costs {words.rate(price)}"
    ctx.screen.say(f"detached: job {job.job_id} goes on{cost}")
    ctx.screen.say(f"  follow it: vastctl logs -f {job.job_id}")
    ctx.screen.say(f"  end it:    vastctl job cancel {job.job_id}")
    return ExitCode.OK


def _price(ctx: Context, job: JobView) -> float | None:
    """Ask for the price of the machine as it is now; the interrupted connection is not used."""
    ctx.client.close()
    ctx.client.reconnect_s = 0.0
    try:
        now = ctx.client.call(jobs.GET, jobs.JobRef(job=job.job_id), limit_s=ASK_PRICE_S)
        wish = rentals.RentalRef(rental=now.rental_id)
        if now.rental_id is None:
            return None
        return ctx.client.call(rentals.GET, wish, limit_s=ASK_PRICE_S).dph_usd
    except CliError:
        return None
