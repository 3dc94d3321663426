"""What stands in for what a command leaves out: the project's word, else the configuration's.

A flag beats the project, the project beats environment and file, those beat the built-in default.
Caps are no defaults: the lowest counts, whoever set it.
"""

from typing import Protocol

from msgspec import structs

from vastd.config.project import Stated
from vastd.config.settings import Settings
from vastd.core.money import from_usd, to_usd
from vastd.errors import InvalidRequest
from vastd_protocol.methods.rental import PolicyParams
from vastd_protocol.methods.task import Fact
from vastd_protocol.methods.task import Needs as WireNeeds

_FIT_THE_OFFER = ("gpu_ram_gb", "num_gpus", "gpu_name")


class Defaults(Protocol):
    """What `ConfigurationHolder` offers to this module."""

    @property
    def settings(self) -> Settings:
        """Return the values in force."""
        ...

    def by_project(self, dotted: str) -> bool:
        """Return whether the project set that key."""
        ...

    def source(self, dotted: str) -> str:
        """Return who set a key, for people."""
        ...

    def profile(self, said: str | None) -> Stated:
        """Return the profile in force when the command said `said`."""
        ...


def cap_hint(config: Defaults, dotted: str) -> str:
    """Return where a cap that refuses can be changed: raising the user's own does not help where
    the project set a lower one."""
    if config.by_project(dotted):
        where = config.source(dotted).removeprefix("project (").removesuffix(")")
        return f"your project's {where} caps this: change it there, or ask for less"
    return (
        f"raise the cap with `vastctl budget {dotted.removeprefix('budget.')}=N`, or ask for less"
    )


def fill_needs(said: WireNeeds, config: Defaults) -> tuple[WireNeeds, dict[str, str]]:
    """Return `said` with what it leaves out, and for each field put in who stated it.

    Image, disk and price that only the configuration sets stay open: the planner knows them, and
    may choose another image for a card that needs it.

    Raises:
        InvalidRequest: there is no such profile.
    """
    known = config.settings.needs
    filled: dict[str, object] = {}
    said_by: dict[str, str] = {}

    def take(field: str, value: object, dotted: str, named: str = "") -> None:
        if getattr(said, field) is None and value is not None:
            filled[field] = value
            said_by[named or field] = config.source(dotted)

    # Who names an offer has looked at it: what it is need not be what the project usually wants.
    if said.offer_id is None:
        for field in _FIT_THE_OFFER:
            take(field, getattr(known, field), f"needs.{field}")
    take("hours", known.hours, "needs.hours")
    if config.by_project("defaults.image"):
        take("image", config.settings.defaults.image, "defaults.image")
    if config.by_project("defaults.disk_gb"):
        take("disk_gb", config.settings.defaults.disk_gb, "defaults.disk_gb")
    if config.by_project("budget.max_dph_usd"):
        cap = "budget.max_dph_usd"
        take("max_dph_usd", config.settings.budget.max_dph_usd or None, cap, "max_dph")
    if said.spot and said.on_demand:
        raise InvalidRequest("a machine is interruptible (spot) or on demand, not both")
    if known.spot and not said.on_demand:
        filled["spot"] = True
    filled["profile"] = str(config.profile(said.profile).profile)
    return structs.replace(said, **filled), said_by


def fill_policy(said: PolicyParams, config: Defaults) -> PolicyParams:
    """Return `said` with the heartbeat and checkpoint it leaves out."""
    job = config.settings.job
    filled: dict[str, object] = {}
    if said.heartbeat_path is None and job.heartbeat is not None:
        filled["heartbeat_path"] = job.heartbeat
        filled["heartbeat_interval_s"] = said.heartbeat_interval_s or job.heartbeat_interval_s
    if said.checkpoint_path is None and job.checkpoint is not None:
        filled["checkpoint_path"] = job.checkpoint
    return structs.replace(said, **filled)


def limit_facts(config: Defaults, budget_usd: float | None) -> dict[str, Fact]:
    """Return by setting what bounds the spending of a job, with who set it."""
    settings = config.settings

    def fact(value: float | str, dotted: str) -> Fact:
        return Fact(value=value, source=config.source(dotted), confidence="default")

    cap = to_usd(from_usd(settings.budget.per_job_usd))
    facts = {
        "budget.per_job_usd": fact(cap, "budget.per_job_usd"),
        "budget.max_dph_usd": fact(settings.budget.max_dph_usd, "budget.max_dph_usd"),
        "defaults.max_runtime_s": fact(settings.defaults.max_runtime_s, "defaults.max_runtime_s"),
        "defaults.idle_s": fact(settings.defaults.idle_s, "defaults.idle_s"),
    }
    for key in ("heartbeat", "checkpoint"):
        if (value := getattr(settings.job, key)) is not None:
            facts[f"job.{key}"] = fact(value, f"job.{key}")
    if settings.job.outputs:
        facts["job.outputs"] = fact(", ".join(settings.job.outputs), "job.outputs")
    if budget_usd is not None:
        facts["budget.per_job_usd"] = Fact(value=budget_usd, source="you said so (--budget)")
    return facts
