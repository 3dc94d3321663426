"""What a seed makes of interruptible machines: who bids, what follows an outbid, when prices move."""

import random
from collections.abc import Sequence

from msgspec import Struct, structs

from vastd.core.rental import OnOutbid, Policy
from vastd.simulator.faults import MachineFault, MachineFaultKind

JobDraw = tuple[float, list[str], Policy]


class BidDraw(Struct, frozen=True, kw_only=True):
    """One story's bids. Nothing of it when the machines are on demand."""

    bids: bool = False
    faults: tuple[MachineFault, ...] = ()


def draw_bids(seed: int, within_s: float) -> BidDraw:
    """Return the bids of `seed`, from a stream of its own: its other draws stay what they were."""
    rng = random.Random(f"bids:{seed}")
    if rng.random() < 0.6:
        return BidDraw()
    faults = [
        MachineFault(
            kind=MachineFaultKind.OUTBID,
            after_s=rng.uniform(0, within_s),
            for_s=rng.choice((None, 30.0, 600.0, 3000.0)),
            keeps_intent=rng.choice((None, True, False)),
        )
        for _ in range(rng.randrange(1, 4))
    ]
    if rng.random() < 0.15:
        drained = MachineFaultKind.CREDIT_ZERO
        faults.append(MachineFault(kind=drained, after_s=rng.uniform(0, within_s)))
    if rng.random() < 0.3:
        factor = rng.choice((0.5, 1.5, 3.0))
        drift = MachineFaultKind.PRICE_DRIFT
        faults.append(MachineFault(kind=drift, after_s=rng.uniform(0, within_s), factor=factor))
    return BidDraw(bids=True, faults=tuple(faults))


def with_policies(seed: int, jobs: Sequence[JobDraw]) -> list[JobDraw]:
    """Return `jobs` with what each wants done when its machine is outbid."""
    rng = random.Random(f"outbid:{seed}")
    return [
        (
            at,
            words,
            structs.replace(
                policy,
                on_outbid=rng.choice(list(OnOutbid)),
                outbid_wait_s=rng.choice((600.0, 21_600.0)),
                checkpoint_path=rng.choice((None, "results/checkpoint.bin")),
            ),
        )
        for at, words, policy in jobs
    ]
