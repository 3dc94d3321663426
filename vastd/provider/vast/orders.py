"""The bodies of a search and of a create, and what must be right before they are sent."""

import math
from collections.abc import Iterator
from typing import Final

from vastd.core.market import CreateSpec, OfferQuery
from vastd.core.money import Micros, show, to_usd
from vastd.errors import BadSpec

# Vast's own defaults, sent all the same: which it applies to an absent filter depends on the
# route (VAST_API 2.1, 2.2).
DEFAULT_FILTERS: Final[dict[str, dict[str, object]]] = {
    "verified": {"eq": True},
    "external": {"eq": False},
    "rentable": {"eq": True},
}
# Filtering on `id` finds nothing (seen 2026-10-02, VAST_API 2.1).
FILTER_NAMES: Final = {"id": "ask_contract_id"}

# SSH direct where the machine has a free port, with the proxy as second way. The spelling is
# what the official client sends, and `runtype` is the only thing that counts (vast-ai/docs#143).
RUNTYPE: Final = "ssh_direc ssh_proxy"

MAX_IMAGE_CHARS: Final = 1024  # VAST_API 3.1
MAX_LABEL_CHARS: Final = 256  # at create; the label route takes 1024 (VAST_API 3.1)
MAX_ONSTART_CHARS: Final = 4096  # the smaller of two reports (VAST_API 3.1)
MAX_ENV_CHARS: Final = 32_768  # in all (VAST_API 3.1)
MIN_BID: Final = Micros(1_000)  # per hour (VAST_API 3.1)
MAX_BID: Final = Micros(128_000_000)  # per hour (VAST_API 3.1)


def search_body(query: OfferQuery) -> dict[str, object]:
    """Return the body of `POST bundles`; a filter with no operators takes its default away."""
    filters = DEFAULT_FILTERS | {
        FILTER_NAMES.get(name, name): ops for name, ops in query.filters.items()
    }
    return {
        **{name: ops for name, ops in filters.items() if ops},
        "order": [list(column) for column in query.order],
        "type": "bid" if query.interruptible else "on-demand",
        "limit": query.limit,
        "allocated_storage": query.disk_gb,
    }


def create_body(spec: CreateSpec) -> dict[str, object]:
    """Return the body of `PUT asks`.

    Raises:
        BadSpec: Vast would refuse it, cut it or ignore part of it; nothing is sent.
    """
    _check(spec)
    body: dict[str, object] = {
        "client_id": "me",
        "image": spec.image,
        "disk": float(spec.disk_gb),
        "label": spec.label,
        # An object: a string is ignored without a word, though the documents call for one.
        "env": spec.env,
        "runtype": RUNTYPE,
        "target_state": "running",
        # Without it a start that fails leaves a stopped instance that bills (VAST_API 3.3).
        "cancel_unavail": True,
    }
    if spec.onstart:
        body["onstart"] = spec.onstart
    if spec.image_login is not None:
        body["image_login"] = spec.image_login
    if spec.bid is not None:
        # This key alone makes it interruptible (dstack#4026).
        body["price"] = to_usd(spec.bid)
    return body


def secrets_of(spec: CreateSpec) -> list[str]:
    """Return the texts of a spec that an error message must not repeat."""
    login = spec.image_login or ""
    return [login, *login.split(), *spec.env.values()]


def check_bid(bid: Micros) -> None:
    """Raise `BadSpec` when `bid` is outside what Vast takes."""
    if not MIN_BID <= bid <= MAX_BID:
        raise BadSpec(
            f"a bid of {show(bid)}/h is not between {show(MIN_BID)} and {show(MAX_BID)}",
            hint="correct the bid",
        )


def _check(spec: CreateSpec) -> None:
    problem = next(_problems(spec), None)
    if problem is not None:
        raise BadSpec(
            f"cannot create from offer {spec.offer_id}: {problem}",
            hint="nothing was sent; correct the request",
        )
    if spec.bid is not None:
        check_bid(spec.bid)


def _problems(spec: CreateSpec) -> Iterator[str]:
    image = spec.image
    if not image or any(char.isspace() or not char.isprintable() for char in image):
        yield f"{image[:80]!r} is not an image name, it is empty or has white space in it"
    for name, value, limit in (
        ("the image name", image, MAX_IMAGE_CHARS),
        ("the label", spec.label, MAX_LABEL_CHARS),
        ("the onstart script", spec.onstart, MAX_ONSTART_CHARS),
    ):
        if len(value) > limit:
            yield f"{name} has {len(value)} characters, vast takes {limit}"
    if not spec.label.strip():
        yield "it has no label, so it could not be found again"
    if not (math.isfinite(spec.disk_gb) and spec.disk_gb > 0):
        yield f"a disk of {spec.disk_gb} GB makes no sense"
    if any(not name.strip() or "=" in name or "\0" in name for name in spec.env):
        yield "the environment has a variable without a usable name"
    env_chars = sum(len(name) + len(value) for name, value in spec.env.items())
    if env_chars > MAX_ENV_CHARS:
        yield f"the environment has {env_chars} characters, vast takes {MAX_ENV_CHARS}"
