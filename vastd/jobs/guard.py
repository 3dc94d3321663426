"""The guard on a machine: its two scripts, and what one renewal says to it."""

from importlib import resources

from vastd.core.lease import LeaseTerms


def core_text() -> str:
    """Return the half of the guard that onstart starts, as one may read it."""
    return _script("guard_core.sh")


def guard_text() -> str:
    """Return the half that comes by SSH; it needs the runner's functions in front of it."""
    return _script("guard.sh")


def _script(name: str) -> str:
    return resources.files("vastd.jobs").joinpath(name).read_text("utf-8")


def hold_arguments(terms: LeaseTerms, core: str, guard: str, workspace: str) -> list[str]:
    """Return the arguments of `vastd_lease_hold`. `guard` is what the guard runs at an end."""
    return [
        core,
        guard,
        _whole(terms.lease_s),
        workspace,
        _whole(terms.grace_s),
        terms.salvage,
        _whole(terms.for_s),
        _whole(terms.hard_s),
        terms.on_expiry,
        " ".join(terms.uncollected),
        " ".join(terms.settled),
    ]


def _whole(seconds: float) -> str:
    return str(round(seconds))
