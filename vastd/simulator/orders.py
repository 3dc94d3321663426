"""Checks what a create asks for, as the live service does (VAST_API 3.1 and 3.3)."""

from typing import Final

from vastd.core.money import MICROS_PER_USD
from vastd.simulator.contracts import RentOrder
from vastd.simulator.machines import Chunk
from vastd.simulator.refusals import MarketRefused, invalid_args

IMAGE_CHARS: Final = 1024  # VAST_API 3.1
LABEL_CHARS: Final = 256  # VAST_API 3.1: at create
ENV_VALUE_CHARS: Final = 256  # VAST_API 3.1
ENV_CHARS: Final = 32_768  # VAST_API 3.1
SCRIPT_CHARS: Final = 4_096  # VAST_API 3.1: args and onstart together, as seen live
MIN_BID_USD: Final = 0.001  # VAST_API 3.1
MAX_BID_USD: Final = 128.0  # VAST_API 3.1


def check_order(order: RentOrder, chunk: Chunk) -> None:
    """Accept an order or say what is wrong with it.

    Raises:
        MarketRefused: nothing would be made.
    """
    if not order.image and order.template_hash_id is None:
        raise invalid_args("image or template is needed")
    if len(order.image) > IMAGE_CHARS or any(c.isspace() for c in order.image):
        raise invalid_args("image is not a valid reference")
    offered = chunk.machine.disk_space_gb * chunk.num_gpus / chunk.machine.num_gpus
    if not 0 < order.disk_gb <= offered + 0.1:
        raise invalid_args(f"disk must be above 0 and at most {offered:.1f} GB")
    if order.label is not None and len(order.label) > LABEL_CHARS:
        raise MarketRefused(400, "label_too_long", f"label exceeds {LABEL_CHARS} characters")
    if len(order.onstart) + sum(map(len, order.args)) > SCRIPT_CHARS:
        raise invalid_args(f"onstart and args exceed {SCRIPT_CHARS} characters")
    if any(len(value) > ENV_VALUE_CHARS for value in order.env.values()):
        raise invalid_args(f"an env value exceeds {ENV_VALUE_CHARS} characters")
    if sum(len(key) + len(value) for key, value in order.env.items()) > ENV_CHARS:
        raise invalid_args(f"env exceeds {ENV_CHARS} characters")
    if order.target_state not in ("running", "stopped"):
        raise invalid_args("target_state must be running or stopped")
    if order.bid is not None and not MIN_BID_USD <= order.bid / MICROS_PER_USD <= MAX_BID_USD:
        raise MarketRefused(
            400, "invalid_price", f"price must be from {MIN_BID_USD} to {MAX_BID_USD}"
        )
