"""What a client asked for, checked and turned into the core's own terms."""

import math
import os
from pathlib import Path
from typing import Final

from vastd.core.job import Job, Needs
from vastd.core.money import from_usd, show_two, show_two_rates
from vastd.core.rental import OnOutbid, Policy, Rental
from vastd.defaults import cap_hint, fill_needs, fill_policy
from vastd.errors import BudgetExceeded, InvalidRequest, TransferFailed, UnsafePath
from vastd.jobs.paths import check_output
from vastd.jobs.port import ProjectSource
from vastd.jobs.selection import select
from vastd.rpc.context import Configuration
from vastd_protocol.methods.rental import PolicyParams
from vastd_protocol.methods.task import Needs as WireNeeds

MAX_NUMBER: Final = 1e9  # guess: 31 years, and more dollars than anybody rents for
MAX_ENV_KEYS: Final = 200  # guess: far more than any job needs, far less than a mistake


def needs_of(said: WireNeeds, config: Configuration | None = None) -> Needs:
    """Return the needs; what was left out comes from `config`, of the project that asks.

    Raises:
        InvalidRequest: a number that cannot be meant.
        BudgetExceeded: a price over the cap of one machine.
    """
    if config is not None:
        said, _ = fill_needs(said, config)
    for name in ("hours", "gpu_ram_gb", "disk_gb", "max_dph_usd", "bid_usd_h"):
        _positive(name, getattr(said, name))
    if config is not None:
        _check_price(said, config)
    if said.num_gpus is not None and not 1 <= said.num_gpus <= 64:
        raise InvalidRequest(f"num_gpus must be 1 to 64, not {said.num_gpus}")
    if said.min_reliability is not None and not 0 <= said.min_reliability <= 1:
        raise InvalidRequest(f"min_reliability must be 0 to 1, not {said.min_reliability}")
    if said.image is not None and (not said.image or any(c.isspace() for c in said.image)):
        raise InvalidRequest(
            f"{said.image!r} is not an image name: it must not be empty or hold spaces"
        )
    if said.image is not None and len(said.image) > 1024:  # VAST_API 3.1
        raise InvalidRequest("the image name is over 1,024 characters")
    if said.bid_usd_h is not None and not said.spot:
        raise InvalidRequest("a bid makes sense only for an interruptible machine (spot)")
    return Needs(
        task=said.task,
        hours=said.hours,
        gpu_ram_gb=said.gpu_ram_gb,
        num_gpus=said.num_gpus,
        gpu_name=said.gpu_name,
        disk_gb=said.disk_gb,
        image=said.image,
        max_dph_usd=said.max_dph_usd,
        min_reliability=said.min_reliability,
        spot=said.spot,
        bid_usd_h=said.bid_usd_h,
        offer_id=said.offer_id,
        profile=said.profile,
    )


def _check_price(said: WireNeeds, config: Configuration) -> None:
    _, cap = config.caps()
    for what, usd in (("price", said.max_dph_usd), ("bid", said.bid_usd_h)):
        if usd is not None and from_usd(usd) > cap:
            asked, allowed = show_two_rates(from_usd(usd), cap)
            raise BudgetExceeded(
                f"a {what} of {asked} is over the cap of {allowed} for one machine",
                hint=cap_hint(config, "budget.max_dph_usd"),
            )


def policy_of(said: PolicyParams, config: Configuration) -> Policy:
    """Return the policy: what was said, else the configured defaults, never over the caps.

    Raises:
        InvalidRequest: a number that cannot be meant.
        BudgetExceeded: more than the configuration allows one job. Less than was asked for would
            end the job early.
    """
    said = fill_policy(said, config)
    for name in (
        "budget_usd", "max_runtime_s", "idle_s", "heartbeat_interval_s", "outbid_wait_s"
    ):  # fmt: skip
        _positive(name, getattr(said, name))
    if said.grace_s is not None and not 0 <= said.grace_s <= 3600:
        raise InvalidRequest(f"grace_s must be 0 to 3600, not {said.grace_s}")
    if said.on_outbid is not None and said.on_outbid not in {*OnOutbid}:
        raise InvalidRequest(
            f"on_outbid must be one of {', '.join(OnOutbid)}, not {said.on_outbid[:40]!r}"
        )
    default = config.policy()
    per_job, per_hour = config.caps()
    budget = from_usd(said.budget_usd) if said.budget_usd is not None else per_job
    if budget > per_job:
        asked, cap = show_two(budget, per_job)
        raise BudgetExceeded(
            f"a budget of {asked} is over the cap of {cap} for one job",
            hint=cap_hint(config, "budget.per_job_usd"),
        )
    return Policy(
        max_runtime_s=said.max_runtime_s or default.max_runtime_s,
        budget=budget,
        max_dph=per_hour,
        idle_s=said.idle_s,
        idle_warn_s=default.idle_warn_s,
        heartbeat_path=said.heartbeat_path,
        heartbeat_interval_s=said.heartbeat_interval_s or default.heartbeat_interval_s,
        checkpoint_path=said.checkpoint_path,
        grace_s=default.grace_s if said.grace_s is None else said.grace_s,
        keep=said.keep,
        unreachable_end_s=default.unreachable_end_s,
        on_outbid=OnOutbid(said.on_outbid or default.on_outbid),
        outbid_wait_s=said.outbid_wait_s or default.outbid_wait_s,
    )


def no_limits(said: PolicyParams, rental: Rental) -> None:
    """Refuse limits for a job on a machine that has its own.

    Raises:
        InvalidRequest: names what was said; it would be ignored.
    """
    limits = ("budget_usd", "max_runtime_s", "idle_s", "on_outbid", "outbid_wait_s")
    given = [name for name in limits if getattr(said, name) is not None]
    ends_itself = rental.purpose == "job" and not rental.policy.keep
    given += ["keep"] if said.keep and ends_itself else []
    if given:
        raise InvalidRequest(
            f"{', '.join(given)}: rental {rental.name!r} keeps the limits it was rented with",
            hint="leave them out, or leave --on out to rent a machine with these limits",
        )


def _positive(name: str, value: float | None) -> None:
    if value is not None and (not math.isfinite(value) or not 0 < value <= MAX_NUMBER):
        raise InvalidRequest(
            f"{name} must be a positive number, at most {MAX_NUMBER:.0f}, not {value}"
        )


def check_env(env: dict[str, str]) -> None:
    """Refuse names no shell could export, and values no file of lines could hold.

    Raises:
        InvalidRequest: names the offender, never its value.
    """
    if len(env) > MAX_ENV_KEYS:
        raise InvalidRequest(f"{len(env)} environment variables, at most {MAX_ENV_KEYS}")
    for key, value in env.items():
        if not key.replace("_", "a").isalnum() or key[0].isdigit() or not key.isascii():
            raise InvalidRequest(f"{key!r} is not the name of an environment variable")
        if "\x00" in value:
            raise InvalidRequest(f"the value of {key} holds a NUL character")


async def check_sendable(job: Job) -> None:
    """Refuse, before a machine is rented for it, a job whose code cannot be sent or whose
    outputs could never be brought home.

    Raises:
        InvalidRequest: says what is in the way.
    """
    _check_root(job.project)
    try:
        for output in job.outputs:
            check_output(output)
        await select(ProjectSource(root=Path(job.project), include=job.include))
    except (UnsafePath, TransferFailed) as exc:
        raise InvalidRequest(str(exc), hint=exc.hint) from exc


def _check_root(project: str) -> None:
    root, home = Path(project).resolve(), Path.home().resolve()
    if root == home or root in home.parents:
        raise InvalidRequest(
            f"the project would be {os.fspath(root)!r}, which holds all of your home: it is not "
            "sent to a rented machine",
            hint="run it in the directory of your code",
        )
