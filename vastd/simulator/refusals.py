"""What the simulated Vast says no with: HTTP status, code and text, as the live service words it.

The façade sends a refusal as it is; the in-memory provider turns it into our error classes.
"""

from vastd.errors import VastdError


class MarketRefused(VastdError):
    """The market refused a call. Nothing was changed unless `extra` names a `new_contract`."""

    def __init__(self, status: int, code: str, msg: str, **extra: object) -> None:
        super().__init__(f"the simulated vast answered {status} {code}: {msg}")
        self.status = status
        self.code = code
        self.msg = msg
        self.extra = extra

    def body(self) -> dict[str, object]:
        """Return the JSON body of the answer."""
        return {"success": False, "error": self.code, "msg": self.msg, **self.extra}


def no_such_ask(offer_id: int) -> MarketRefused:
    """Return the live form of 'offer is gone' (VAST_API 3.3): a 400, whatever the text says."""
    return MarketRefused(
        400,
        "invalid_args",
        f"error 404/3603: no_such_ask  Instance type by id {offer_id} is not available.",
        ask_id=offer_id,
    )


def no_such_instance(instance_id: int) -> MarketRefused:
    """Return the answer about an id that does not exist or is somebody else's."""
    return MarketRefused(404, "no_such_instance", f"No such instance: {instance_id}.")


def insufficient_credit() -> MarketRefused:
    """Return the answer to an account that cannot pay."""
    return MarketRefused(
        400, "insufficient_credit", "Your account lacks credit; see the billing page."
    )


def spend_rate_limit() -> MarketRefused:
    """Return the answer to a young account that rents too fast."""
    return MarketRefused(
        400, "spend_rate_limit", "Your account is new: spending is limited for now."
    )


def resources_unavailable() -> MarketRefused:
    """Return the answer to a start whose GPUs are taken: HTTP 200 and `success: false`."""
    return MarketRefused(
        200,
        "resources_unavailable",
        "Required resources are currently unavailable, state change queued.",
    )


def bid_too_low(instance_id: int) -> MarketRefused:
    """Return the error that nevertheless made a (stopped) instance (VAST_API 3.3)."""
    return MarketRefused(
        400,
        "invalid_price",
        "Your bid is below the current price; the instance was created stopped.",
        new_contract=instance_id,
    )


def invalid_args(msg: str) -> MarketRefused:
    """Return the answer to arguments Vast cannot use."""
    return MarketRefused(400, "invalid_args", f"error 400/3467: {msg}")


def invalid_request(msg: str) -> MarketRefused:
    """Return the answer to a body or filter Vast cannot read."""
    return MarketRefused(400, "invalid_request", msg)
