"""Rentals to measure with: on record in a store, and the rows a listing shows of them."""

import json
import time
from pathlib import Path

from msgspec import structs

from support.builders import a_rental
from support.installed import Installed
from vastd.core.labels import make_label
from vastd.core.money import from_usd
from vastd.core.rental import Phase, RateSegment, Rental
from vastd.owner import owner_word
from vastd.store.store import opened

LEASE_S = 86_400.0  # nothing ends while it is measured


def rentals(count: int, owner8: str, instance_ids: list[int], now: float) -> list[Rental]:
    """Return `count` ready rentals, begun at `now`."""
    template = a_rental(
        Phase.READY,
        created_at=now,
        phase_since=now,
        phases=((Phase.READY, now),),
        create_sent_at=now,
        deadline_at=now + LEASE_S,
        rates=(RateSegment(now, from_usd(0.01)),),
    )
    return [
        structs.replace(
            template,
            rental_id=f"r{n:06d}",
            name=f"machine-{n}",
            label=make_label(owner8, f"r{n:06d}", "bench"),
            instance_id=instance_ids[n],
        )
        for n in range(count)
    ]


def put_on_record(state_dir: Path, held: list[Rental]) -> None:
    """Write rentals into the store of a daemon that does not run."""
    with opened(state_dir) as store:
        store.write([], held, [])


def rent_on_simulator(vast: Installed, count: int) -> None:
    """Have a running simulated daemon own `count` more-or-less empty machines; it is restarted.

    The simulator makes their contracts without machines behind them, so that only vastd's own
    work is measured. It has 125 offers, so `count` is at most that.
    """
    owner8 = owner_word(vast.state)
    labels = [make_label(owner8, f"r{n:06d}", "bench") for n in range(count)]
    made = [
        vast.simulator("/sim/foreign/", json.dumps({"label": label}).encode()) for label in labels
    ]
    ids = [int(answer["new_contract"]) for answer in made]
    vast.stop()
    put_on_record(vast.state, rentals(count, owner8, ids, time.time()))
    vast.start()
