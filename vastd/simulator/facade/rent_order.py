"""Reads what a create or an update asks for out of its body (VAST_API 3.1, 5)."""

from typing import Final

from msgspec import structs

from vastd.core.money import from_usd
from vastd.simulator import refusals
from vastd.simulator.contracts import RentOrder
from vastd.simulator.facade.routes import JsonObject
from vastd.simulator.refusals import MarketRefused, invalid_args
from vastd.simulator.templates import Templates

DEFAULT_DISK_GB: Final = 8.0  # VAST_API 3.1


def read_order(body: JsonObject, templates: Templates) -> RentOrder:
    """Return what a create asks for.

    Raises:
        MarketRefused: a value is of the wrong kind, the template or the volume does not exist.
    """
    _refuse_volumes(body)
    hash_id = _text(body, "template_hash_id")
    if hash_id:
        body = templates.fill(hash_id, body)
    price = body.get("price")
    if price is not None and (isinstance(price, bool) or not isinstance(price, int | float)):
        raise MarketRefused(400, "invalid_price", "price must be a number")
    env = body.get("env")
    args = body.get("args")
    args = [str(item) for item in args] if isinstance(args, list) else []
    if not args and isinstance(body.get("args_str"), str):
        args = str(body["args_str"]).split()
    runtype = _text(body, "runtype") or ("args" if args else "ssh")
    return RentOrder(
        image=_text(body, "image"),
        disk_gb=_disk(body.get("disk")),
        label=_text(body, "label") or None,
        onstart=_text(body, "onstart"),
        # A string is ignored, as it is live (VAST_API 3.1).
        env={str(k): str(v) for k, v in env.items()} if isinstance(env, dict) else {},
        bid=None if price is None else from_usd(price),
        runtype=runtype,
        args=args,
        target_state=_text(body, "target_state") or "running",
        cancel_unavail=body.get("cancel_unavail") is not False,
        template_hash_id=hash_id or None,
    )


def _text(body: JsonObject, name: str) -> str:
    value = body.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise refusals.invalid_args(f"{name}: Input should be a valid string")
    return value


def _disk(value: object) -> float:
    if value is None:
        return DEFAULT_DISK_GB
    try:
        return float(str(value))
    except ValueError as exc:
        raise invalid_args("disk: Input should be a valid number") from exc


def changed_order(order: RentOrder, body: JsonObject, templates: Templates) -> RentOrder:
    """Return an order with what an update names replaced; `id` in the body is ignored.

    Raises:
        MarketRefused: as `read_order` does.
    """
    hash_id = _text(body, "template_hash_id")
    if hash_id:
        body = templates.fill(hash_id, body)
    asked = read_order({"image": order.image, **body, "template_hash_id": None}, templates)
    named = {"image", "env", "onstart", "args"} & set(body)
    return structs.replace(order, **{name: getattr(asked, name) for name in named})


def _refuse_volumes(body: JsonObject) -> None:
    """Refuse a create that mounts a volume: this market has none, so each is unknown."""
    env = body.get("env")
    linked = [name for name in env if str(name).startswith("-v ")] if isinstance(env, dict) else []
    if body.get("volume_info") or linked:
        raise MarketRefused(404, "no_such_volume", "No such volume.")
