"""Puts offers in order for one task and names the three worth showing: cheapest, best value, fastest.

Rules (SEL-07 to SEL-10; ties: fewer hours, higher reliability, a direct port, lower offer id)
1. Offers whose hours lie within 20 % of the fastest of their group count as equally fast; the
   cheapest of a group stands for it, and is what "fastest" means for the first group.
2. score = total + the value of waiting: nothing up to 30 min behind the fastest group's choice,
   $5 for every hour behind it otherwise (C-09). The lowest score is the best value.
3. Without hours the work decides: price over speed is what a unit of work costs on any machine.
4. What a machine's own history adds (`Candidate.risk`) counts like money: a host that failed every
   second time is worth half as much again.
5. The order of the input never matters.
"""

import math
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct

from vastd.core.estimate import Candidate
from vastd.core.money import to_usd

EPSILON: Final = 1e-9  # float noise of hours and dollars; far below a second or a cent


class RankRules(Struct, frozen=True, kw_only=True):
    """The three constants of the score, all the user's to change (C-09)."""

    wait_usd_h: float = 5.0
    free_wait_h: float = 0.5
    equal_speed: float = 0.20


class Role(StrEnum):
    """Why an offer is shown."""

    CHEAPEST = "cheapest"
    BEST_VALUE = "best_value"
    FASTEST = "fastest"


class Pick(Struct, frozen=True, kw_only=True):
    """A candidate and the roles it plays, in the order of `Role`."""

    roles: tuple[Role, ...]
    candidate: Candidate


class _Entry(Struct, frozen=True, kw_only=True):
    candidate: Candidate
    hours: float  # of the job, or per unit of work when the job's hours are unknown
    cost: float  # USD, of the same


def rank(candidates: Iterable[Candidate], rules: RankRules) -> list[Candidate]:
    """Return all candidates, best value first; those of unknown speed come last, by price."""
    every = list(candidates)
    entries = _entries(every)
    known = {entry.candidate.offer.offer_id for entry in entries}
    groups = _groups(entries, rules)
    scored = [
        (_score(entry, group[0], groups[0][0], rules), entry) for group in groups for entry in group
    ]
    scored.sort(key=lambda pair: (round(pair[0], 9), *_tie(pair[1])))
    rest = [c for c in every if c.offer.offer_id not in known]
    rest.sort(key=lambda c: (c.price * (1.0 + c.risk), *_trust(c)))
    return [entry.candidate for _, entry in scored] + rest


def by_total(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return all candidates by total, or by price per hour where there is no total; cheapest first."""
    return sorted(
        candidates,
        key=lambda c: (
            c.total is None,
            c.price if c.total is None else c.total,
            math.inf if c.hours is None else c.hours,
            *_trust(c),
        ),
    )


def picks(ranked: Sequence[Candidate], rules: RankRules) -> list[Pick]:
    """Return up to 3 offers worth showing, cheapest first; one offer may play several roles.

    `ranked` is what `rank` returned: its first is the best value.
    """
    if not ranked:
        return []
    roles: dict[int, list[Role]] = {}
    chosen: dict[int, Candidate] = {}
    groups = _groups(_entries(ranked), rules)
    named = [(Role.CHEAPEST, by_total(ranked)[0]), (Role.BEST_VALUE, ranked[0])]
    if groups:
        named.append((Role.FASTEST, groups[0][0].candidate))
    for role, candidate in named:
        roles.setdefault(candidate.offer.offer_id, []).append(role)
        chosen[candidate.offer.offer_id] = candidate
    return [
        Pick(roles=tuple(roles[c.offer.offer_id]), candidate=c) for c in by_total(chosen.values())
    ]


def one_per_machine(ranked: Iterable[Candidate]) -> list[Candidate]:
    """Return `ranked` with only the first offer of each machine and GPU count.

    A machine publishes overlapping chunks; renting one invalidates its siblings (VAST_API 2.1).
    """
    seen: set[tuple[int, int]] = set()
    kept = []
    for candidate in ranked:
        key = (candidate.offer.machine_id, candidate.offer.num_gpus)
        if key not in seen:
            seen.add(key)
            kept.append(candidate)
    return kept


def _entries(candidates: Iterable[Candidate]) -> list[_Entry]:
    found = []
    for c in candidates:
        if c.hours is not None and c.total is not None:
            cost = to_usd(c.total) * (1.0 + c.risk)
            found.append(_Entry(candidate=c, hours=c.hours, cost=cost))
        elif c.machine_speed:
            work = 1.0 / c.machine_speed
            found.append(
                _Entry(candidate=c, hours=work, cost=to_usd(c.price) * work * (1.0 + c.risk))
            )
    if any(c.hours is not None for c in (entry.candidate for entry in found)):
        # Hours and work must not be compared: with hours known, only those that have them compete.
        found = [entry for entry in found if entry.candidate.hours is not None]
    return found


def _groups(entries: list[_Entry], rules: RankRules) -> list[list[_Entry]]:
    """Return the groups of equal speed, fastest first, each with its cheapest first."""
    groups: list[list[_Entry]] = []
    limit = -math.inf
    for entry in sorted(entries, key=lambda e: (e.hours, *_trust(e.candidate))):
        if entry.hours > limit + EPSILON:
            groups.append([])
            limit = entry.hours * (1.0 + rules.equal_speed)
        groups[-1].append(entry)
    return [sorted(group, key=lambda e: (round(e.cost, 9), *_tie(e))) for group in groups]


def _score(entry: _Entry, stands_for: _Entry, fastest: _Entry, rules: RankRules) -> float:
    if entry.candidate.hours is None:
        return entry.cost
    wait = stands_for.hours - fastest.hours  # the whole group counts as equally fast
    penalty = 0.0 if wait <= rules.free_wait_h + EPSILON else rules.wait_usd_h * wait
    return entry.cost + penalty


def _tie(entry: _Entry) -> tuple[float, float, bool, int]:
    return (round(entry.hours, 9), *_trust(entry.candidate))


def _trust(c: Candidate) -> tuple[float, bool, int]:
    return (-(c.offer.reliability or 0.0), not c.offer.direct_port_count, c.offer.offer_id)
