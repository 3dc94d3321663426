"""Which rental or job a client means: name, id, Vast's instance id, unique prefix, or the only one."""

from collections.abc import Callable, Sequence

from vastd.core.job import Job
from vastd.core.rental import Phase, Rental
from vastd.errors import AmbiguousName, NotFound
from vastd.ledger import Ledger


def find_rental(ledger: Ledger, wanted: str | None, project: str | None) -> Rental:
    """Return the rental meant. Live ones win over ended ones of the same name.

    A name may be made of digits: where it is somebody else's instance id as well, neither wins.

    Raises:
        NotFound, AmbiguousName: none or several fit; the message lists them.
    """
    everything = list(ledger.rentals.values())
    if wanted is None:
        live = [r for r in everything if r.phase is not Phase.GONE]
        its_own = [r for r in live if project is None or r.project == project]
        return _the_only(its_own, "rental", project)
    text: str = wanted
    if (by_id := ledger.rentals.get(text)) is not None:
        return by_id
    by_name = _meant(wanted, [r for r in everything if r.name == text])
    by_instance = _meant(wanted, [r for r in everything if str(r.instance_id) == text])
    if by_name is not None and by_instance is not None and by_name is not by_instance:
        # Whichever was preferred, the other one could be ended by mistake.
        raise _ambiguous("rental", wanted, _listed([by_name, by_instance]))
    found = by_name or by_instance
    if found is None:
        begins = [r for r in everything if r.rental_id.startswith(text) or r.name.startswith(text)]
        found = _meant(wanted, begins)
    if found is None:
        raise NotFound(f"no rental {wanted!r} on record", hint="`vastctl ls --all` lists them")
    return found


def _meant(wanted: str, found: Sequence[Rental]) -> Rental | None:
    """Return the one that is live, else the newest; None if there is none."""
    live = [r for r in found if r.phase is not Phase.GONE]
    if len(live) > 1:
        raise _ambiguous("rental", wanted, _listed(live))
    if live:
        return live[0]
    return found[-1] if found else None


def _listed(rentals: Sequence[Rental]) -> list[str]:
    return [
        f"{r.name} ({r.rental_id}{'' if r.instance_id is None else f', instance {r.instance_id}'})"
        for r in rentals
    ]


def _the_only(found: Sequence[Rental], what: str, project: str | None) -> Rental:
    if len(found) == 1:
        return found[0]
    where = f" of project {project}" if project else ""
    if not found:
        raise NotFound(f"no live {what}{where}", hint="`vastctl ls --all` lists all rentals")
    raise _ambiguous(what, None, _listed(found))


def _ambiguous(what: str, wanted: str | None, names: Sequence[str]) -> AmbiguousName:
    said = f"{wanted!r} fits" if wanted else "there are"
    return AmbiguousName(
        f"{said} several {what}s: {', '.join(names)}", hint=f"name one {what} by the id in brackets"
    )


def find_job(ledger: Ledger, wanted: str | None, project: str | None) -> Job:
    """Return the job meant; without a name the newest of the project.

    Raises:
        NotFound, AmbiguousName: none or several fit; the message lists them.
    """
    everything = list(ledger.jobs.values())
    if wanted is None:
        its_own = [j for j in everything if project is None or j.project == project]
        if not its_own:
            where = f" of project {project}" if project else ""
            raise NotFound(f"no job{where} on record", hint="`vastctl jobs --all` lists them")
        return its_own[-1]
    text: str = wanted
    tests: tuple[Callable[[Job], bool], ...] = (
        lambda j: j.job_id == text,
        lambda j: j.name == text,
        lambda j: j.job_id.startswith(text) or j.name.startswith(text),
    )
    for fits in tests:
        found = [j for j in everything if fits(j)]
        active = [j for j in found if not j.finished]
        if len(active) == 1:
            return active[0]
        if len(active) > 1:
            raise _ambiguous("job", wanted, [f"{j.name} ({j.job_id})" for j in active])
        if found:
            return found[-1]
    raise NotFound(f"no job {wanted!r} on record", hint="`vastctl jobs --all` lists them")
