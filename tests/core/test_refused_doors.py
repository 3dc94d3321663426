"""One machine that refuses SSH is a bad host; two with the same unproven image are a bad image."""

import pytest
from msgspec import structs

from support.builders import T0, a_rental, an_ending
from support.offer_builders import an_offer
from vastd.core.refused_doors import whose_fault
from vastd.core.rental import Blame, Order, Phase, Rental, Trigger


def tried(number: int, image: str = "my/own", **changes: object) -> Rental:
    """A machine of its own that refused, unless told otherwise."""
    ending = an_ending(Trigger.SSH_FAILED, blame=Blame.HOST)
    order = Order(offer=an_offer(number), image=image, disk_gb=50.0)
    fields = {"rental_id": f"r{number}", "order": order, "ending": ending, **changes}
    return a_rental(Phase.GONE, **fields)


NOW = structs.replace(tried(1), ending=None)


def test_the_first_machine_that_refuses_is_to_blame_and_the_image_is_named() -> None:
    blame, more = whose_fault(NOW, [NOW])

    assert blame is Blame.HOST
    assert more == "; my/own never served here: it may have no sshd"


def test_the_second_machine_makes_it_the_images_fault() -> None:
    blame, more = whose_fault(NOW, [NOW, tried(2)])

    assert blame is Blame.RUN
    assert more.startswith("; machine 1002 refused with my/own too")


@pytest.mark.parametrize(
    "other",
    [
        tried(2, "another/image"),
        tried(1, rental_id="r9"),  # the same machine again
        tried(2, ending=an_ending(Trigger.SSH_FAILED, blame=Blame.NOBODY)),  # the key, the guard
        tried(2, ending=an_ending(Trigger.SSH_FAILED)),
        tried(2, ending=an_ending(Trigger.BOOT_OVERDUE, blame=Blame.HOST)),
    ],
)
def test_what_says_nothing_about_the_image_leaves_it_the_hosts_fault(other: Rental) -> None:
    assert whose_fault(NOW, [NOW, other])[0] is Blame.HOST


def test_an_image_that_served_once_is_never_blamed() -> None:
    served = tried(3, ready_at=T0)

    assert whose_fault(NOW, [NOW, tried(2), served]) == (Blame.HOST, "")
