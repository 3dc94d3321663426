"""Long calls with progress: the same connection carries the request and its notifications."""

from contextlib import suppress
from typing import TypeVar

from msgspec import UNSET, DecodeError
from msgspec.json import decode, encode

from vastctl.client import LONG_S, DaemonError, Message
from vastctl.context import Context
from vastctl.errors import ConnectionLost
from vastd_protocol.method import Method
from vastd_protocol.methods import event as events
from vastd_protocol.methods import rental as rentals
from vastd_protocol.methods.rental import RentalView

P = TypeVar("P")
R = TypeVar("R")


def resolve(ctx: Context, ref: str | None) -> RentalView:
    """Return the rental `ref` means in this project."""
    return ctx.client.call(rentals.GET, rentals.RentalRef(rental=ref, project=ctx.project))


def call_with_progress(ctx: Context, method: Method[P, R], params: P, rental_id: str) -> bytes:
    """Return the bytes of the result; progress of the rental is shown meanwhile.

    Raises as `Client.raw`. After a lost connection the call is repeated without progress.
    """

    def show(message: Message) -> None:
        if message.method == events.PROGRESS and message.params is not UNSET:
            with suppress(DecodeError):  # progress is a courtesy
                progress = decode(message.params, type=events.Progress)
                ctx.screen.progress(progress.step, progress.done, progress.total, progress.unit)

    if not ctx.screen.quiet:
        wish = events.EventSubscribeParams(rental=rental_id, progress=True)
        with suppress(ConnectionLost, DaemonError):
            ctx.client.once(events.SUBSCRIBE.name, encode(wish))
    return ctx.client.raw(method, params, limit_s=LONG_S, on_message=show)
