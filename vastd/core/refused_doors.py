"""Whose fault it is when a container runs and its SSH refuses: the host's, or the image's.

An image without sshd, or one whose own start replaces Vast's, refuses on every machine (CASES 57).
One machine cannot tell; two that never let anybody in, with an image that never served, can.
"""

from collections.abc import Iterable

from vastd.core.rental import Blame, Rental, Trigger


def whose_fault(rental: Rental, others: Iterable[Rental]) -> tuple[Blame, str]:
    """Return whom to blame for `rental`, and what is to be said of the image.

    `others`: every rental on record, itself too, in any phase.
    """
    image = rental.order.image
    same = [r for r in others if r.order.image == image and r.rental_id != rental.rental_id]
    if any(r.ready_at is not None for r in same):
        return Blame.HOST, ""  # it has let us in elsewhere
    machine_id = rental.order.offer.machine_id
    for other in same:
        elsewhere = other.order.offer.machine_id
        if elsewhere != machine_id and _was_refused(other):
            return Blame.RUN, (
                f"; machine {elsewhere} refused with {image} too, and it never let anybody in: it "
                "has no sshd, or its own start replaces Vast's"
            )
    return Blame.HOST, f"; {image} never served here: it may have no sshd"


def _was_refused(rental: Rental) -> bool:
    # Ends for another want (a key, a guard) blame nobody, or do not say.
    end = rental.ending
    return end is not None and end.trigger is Trigger.SSH_FAILED and end.blame is Blame.HOST
