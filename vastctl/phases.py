"""Waiting until machines reach a phase: driven by events, with the story told meanwhile."""

from collections.abc import Callable, Sequence

from msgspec.json import encode

from vastctl.attend import RESTART_S
from vastctl.context import Context
from vastctl.follow import Followed, Follower, newest_cursor
from vastctl.story import Story
from vastd_protocol.methods import rental as rentals
from vastd_protocol.methods.rental import RentalView


class PhaseWatch:
    """Made *before* the call that sets things going, so that no event of it is missed."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._after = newest_cursor(ctx.client)
        self._last: dict[str, tuple[bytes, RentalView]] = {}
        self.story = Story(ctx.screen)

    def last(self, rental_id: str) -> tuple[bytes, RentalView]:
        """Return the newest answer about a rental that was followed, raw and decoded."""
        return self._last[rental_id]

    def follow(
        self, rental_ids: Sequence[str], settled: Callable[[RentalView], bool], *, limit_s: float
    ) -> list[str]:
        """Tell what happens until every rental is `settled`; return those that are not in time."""
        ctx = self._ctx
        ctx.client.reconnect_s = RESTART_S
        ctx.client.timeout_s = None  # `--timeout` bounds the whole, through `limit_s`
        self.story = Story(ctx.screen, rentals=rental_ids)
        pending = list(rental_ids)

        def look() -> bool:
            for rental_id in list(pending):
                wish = rentals.RentalRef(rental=rental_id)
                body = ctx.client.once(rentals.GET.name, encode(wish))
                view = ctx.client.view(rentals.GET, body)
                self._last[rental_id] = (body, view)
                if settled(view):
                    pending.remove(rental_id)
            return not pending

        only = rental_ids[0] if len(rental_ids) == 1 else None
        followed = Followed(rental=only, after=self._after)
        Follower(ctx.client, self.story, followed).until(look, limit_s=limit_s)
        return pending
