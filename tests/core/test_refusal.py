"""A refusal names the cap, who holds the money, and three ways on that really would work."""

import pytest
from msgspec import structs

from support.builders import T0, a_rental
from support.offer_builders import an_offer
from vastd.core.limits import Caps, Limits
from vastd.core.money import Micros, from_usd
from vastd.core.refusal import Cheaper, Refusal, refusal
from vastd.core.rental import Order, Phase, Policy, Rental
from vastd.core.spending import Book, Past, credit_use, uses, worst


def a_plan(**policy: object) -> Rental:
    order = Order(offer=an_offer(7, dph=from_usd(1)), image="sim/image", disk_gb=50.0)
    return a_rental(
        Phase.PLANNED,
        rental_id="r-new",
        order=order,
        policy=Policy(**policy),  # type: ignore[arg-type]
    )


OLD = a_rental(
    rental_id="r-old", name="old", estimated_hours=10.0, ready_at=T0
)  # until its deadline


def book(limits: Limits) -> Book:
    return Book(rentals=(OLD,), past=Past(), waiting=(), limits=limits, now=T0 + 3600)


def refused(usd: float, *cheaper: Cheaper, **policy: object) -> Refusal:
    limits, plan = Limits(caps=Caps(per_day=from_usd(usd))), a_plan(**policy)
    use = worst(uses(book(limits), None, plan))
    assert use is not None
    assert not use.fits
    return refusal(use, plan, limits, cheaper)


def fits(usd: float, plan: Rental) -> bool:
    return all(use.fits for use in uses(book(Limits(caps=Caps(per_day=from_usd(usd)))), None, plan))


def test_it_says_which_cap_who_holds_it_and_what_would_help() -> None:
    other = Cheaper(offer_id=99, gpu_name="RTX 3090", num_gpus=2, needs=from_usd(1))

    told = refused(10, other)

    assert told.message == (
        "nothing was rented: it needs up to $12.03, and the cap of one day (per_day_usd, "
        "2027-01-15 UTC) has $5.67 left: $10.00 in all, $0.36 spent, $3.97 reserved by old $3.97"
    )
    assert told.hint.splitlines() == [
        "three ways on:",
        "1. raise the cap: `vastctl budget per_day_usd=17`",
        "2. shorten it: `--budget 5.66` or `--max-runtime 338m` would fit",
        "3. cheaper: `--offer 99` (2x RTX 3090) needs $1.00",
        "or wait: a new day begins at 2027-01-16 00:00:00 UTC",
    ]


@pytest.mark.parametrize("usd", [4.9, 6.0, 10.0, 14.0, 16.0])
def test_every_way_it_shows_works(usd: float) -> None:
    told, plan = refused(usd), a_plan()

    assert fits(told.raise_to / 1e6, plan)
    if told.budget is not None:
        assert told.max_runtime_s is not None
        assert fits(usd, a_plan(budget=told.budget))
        assert fits(usd, a_plan(max_runtime_s=told.max_runtime_s))
        assert fits(usd, structs.replace(plan, order=_at(plan, told.most_per_hour)))
    if told.ending is not None:
        alone = Book(
            rentals=(),
            past=Past(),
            waiting=(),
            limits=Limits(caps=Caps(per_day=from_usd(usd))),
            now=T0,
        )
        assert all(use.fits for use in uses(alone, None, plan))


def _at(plan: Rental, rate: Micros) -> Order:
    return structs.replace(plan.order, offer=structs.replace(plan.order.offer, dph=rate))


def test_ending_a_machine_is_a_way_only_if_it_makes_room() -> None:
    assert refused(14).ending == "old"
    assert "`vastctl destroy old` makes room" in refused(14).hint
    assert refused(10).ending is None


def test_a_cap_that_is_used_up_offers_nothing_useful_to_shorten() -> None:
    told = refused(1)

    assert (told.budget, told.max_runtime_s) == (None, None)
    assert "2. shorten it: nothing useful fits into what is left" in told.hint
    assert "has $0.00 left" in told.message


def test_an_offer_that_would_not_fit_either_is_not_shown() -> None:
    told = refused(10, Cheaper(offer_id=99, gpu_name="H100", num_gpus=1, needs=from_usd(9)))

    assert told.cheaper is None
    assert "3. cheaper: below $0.471/h it would fit as it is, and no offer found is" in told.hint


@pytest.mark.req("BUD-13")
def test_missing_credit_is_added_not_configured() -> None:
    limits, plan = Limits(), a_plan()
    use = credit_use(book(limits), from_usd(10), plan)

    told = refusal(use, plan, limits)

    assert "the credit of the account has $6.03 left: $10.00 in all, $3.97 reserved" in told.message
    assert "1. add credit at https://" in told.hint
    assert "a new" not in told.hint
