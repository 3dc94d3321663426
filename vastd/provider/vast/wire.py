"""Vast's JSON into our data, tolerantly: a surprising field costs that field, never the row.

Rules
1. Numbers may come as text, whole numbers as floats, and NaN or Infinity in place of a number
   (Vast's server writes Python's JSON). What is not a finite number of the right kind is None.
2. An offer without an id, a price or a GPU cannot be rented and is dropped, with a log line.
3. A row of the instance list that has no id makes the whole inventory unknown (I11): it may be
   the machine we look for.
4. Addresses are checked here, because they end up in the argument lists of other programs.
"""

import ipaddress
import json
import logging
import math
import re
from collections.abc import Iterator, Mapping
from typing import Final, TypeVar

import msgspec

from vastd.core.market import Account, Instance, Offer, SshKey
from vastd.core.money import Micros, from_usd
from vastd.errors import ContractChanged

log = logging.getLogger(__name__)

HOURS_PER_MONTH: Final = 720  # Vast prices storage per month of 30 days (VAST_API 2.4)
MAX_INTEGER: Final = 2**63 - 1  # what the store can hold
MAX_USD: Final = 1e9  # beyond this it is not a price
SSH_PORT_KEY: Final = "22/tcp"
_HOST_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}[A-Za-z0-9])?")

T = TypeVar("T")
Row = Mapping[str, object]


class _Unreadable:
    """The type of `UNREADABLE`: a body that is not JSON."""

    def __repr__(self) -> str:
        return "UNREADABLE"


UNREADABLE: Final = _Unreadable()


def parse_json(body: bytes) -> object:
    """Return the JSON value of `body`, or `UNREADABLE`. NaN and Infinity are let in as floats.

    A byte that is not UTF-8 costs that character: one odd label must not hide a machine.
    """
    value: object
    try:
        value = msgspec.json.decode(body)  # half the time of the standard library (measured)
    except (msgspec.DecodeError, RecursionError):
        return _parse_leniently(body)
    return value


def _parse_leniently(body: bytes) -> object:
    try:
        # The standard library lets in what msgspec refuses: NaN, halves of surrogate pairs.
        value: object = json.loads(body.decode("utf-8-sig", "replace"))
    except (ValueError, RecursionError):
        return UNREADABLE
    return value


# -- offers ------------------------------------------------------------------------------


def offers_from(document: object, disk_gb: float) -> list[Offer]:
    """Return the usable offers of a search answer, in its order, each id once.

    Raises:
        ContractChanged: there is no list of offers, or not one of its rows can be read.
    """
    rows = document.get("offers") if isinstance(document, dict) else None
    if not isinstance(rows, list):
        raise ContractChanged(f"a search answered with {_shape(document)} instead of offers")
    offers: dict[int, Offer] = {}
    for row in rows:
        offer = _offer(row, disk_gb) if isinstance(row, dict) else None
        if offer is not None:
            offers.setdefault(offer.offer_id, offer)
    if rows and not offers:
        raise ContractChanged(f"not one of {len(rows)} offers could be read")
    if len(offers) < len(rows):
        log.info("%d of %d offers are unreadable and left out", len(rows) - len(offers), len(rows))
    return list(offers.values())


def _offer(row: Row, disk_gb: float) -> Offer | None:
    # `id` and `ask_contract_id` are the same number; either may be missing.
    offer_id = identity(row, "ask_contract_id") or identity(row, "id")
    machine_id = identity(row, "machine_id")
    gpu_name = text(row, "gpu_name")
    num_gpus = whole(row, "num_gpus")
    gpu_ram_mb = whole(row, "gpu_ram")
    dph_base = price(row, "dph_base")
    dph = price(row, "dph_total") or _with_disk(dph_base, number(row, "storage_cost"), disk_gb)
    if not (offer_id and machine_id and gpu_name and num_gpus and gpu_ram_mb and dph):
        log.debug("offer %s of machine %s is left out: it lacks a field", offer_id, machine_id)
        return None
    return Offer(
        offer_id=offer_id,
        machine_id=machine_id,
        host_id=identity(row, "host_id"),
        gpu_name=gpu_name,
        num_gpus=num_gpus,
        gpu_ram_mb=gpu_ram_mb,
        cpu_cores=size(row, "cpu_cores_effective"),
        cpu_ram_mb=whole(row, "cpu_ram"),
        disk_space_gb=size(row, "disk_space"),
        dph=dph,
        dph_base=dph_base,
        min_bid=price(row, "min_bid"),
        storage_usd_gb_month=size(row, "storage_cost"),
        inet_down_mbps=size(row, "inet_down"),
        inet_up_mbps=size(row, "inet_up"),
        inet_down_usd_gb=size(row, "inet_down_cost"),
        inet_up_usd_gb=size(row, "inet_up_cost"),
        reliability=_share(row, "reliability2", "reliability"),
        compute_cap=whole(row, "compute_cap"),
        cuda_max_good=size(row, "cuda_max_good"),
        driver_version=text(row, "driver_version"),
        dlperf=size(row, "dlperf"),
        total_flops=size(row, "total_flops"),
        geolocation=text(row, "geolocation"),
        verified=_verified(row),
        rentable=flag(row, "rentable") is not False and flag(row, "rented") is not True,
        direct_port_count=whole(row, "direct_port_count"),
        duration_s=size(row, "duration"),
    )


def _with_disk(
    dph_base: Micros | None, usd_gb_month: float | None, disk_gb: float
) -> Micros | None:
    """Return the full rate as Vast makes it up, or None when a part of it is not known."""
    if dph_base is None or usd_gb_month is None:
        return None
    return Micros(dph_base + from_usd(usd_gb_month * disk_gb / HOURS_PER_MONTH))


def _verified(row: Row) -> bool | None:
    word = text(row, "verification")
    return flag(row, "verified") if word is None else word == "verified"


def _share(row: Row, *names: str) -> float | None:
    """Read a number of 0 to 1 from the first of `names` that has one."""
    return next(
        (value for name in names if (value := size(row, name)) is not None and value <= 1), None
    )


# -- instances ---------------------------------------------------------------------------


def instance_from(row: object) -> Instance:
    """Return one row of the listing.

    Raises:
        ContractChanged: it has no readable id.
    """
    instance_id = identity(row, "id") if isinstance(row, dict) else None
    if not isinstance(row, dict) or instance_id is None:
        raise ContractChanged(f"an instance row without an id: {_shape(row)}")
    return Instance(
        instance_id=instance_id,
        machine_id=identity(row, "machine_id"),
        label=text(row, "label"),
        status=text(row, "actual_status"),
        intended_status=text(row, "intended_status"),
        cur_state=text(row, "cur_state"),
        next_state=text(row, "next_state"),
        status_msg=text(row, "status_msg"),
        image=text(row, "image_uuid"),
        runtype=text(row, "image_runtype"),
        gpu_name=text(row, "gpu_name"),
        num_gpus=whole(row, "num_gpus"),
        gpu_ram_mb=whole(row, "gpu_ram"),
        disk_space_gb=size(row, "disk_space"),
        disk_usage_gb=size(row, "disk_usage"),  # -1 while unknown
        dph=price(row, "dph_total"),
        storage_dph=_storage_dph(row),
        is_bid=flag(row, "is_bid"),
        min_bid=price(row, "min_bid"),
        gpu_util=size(row, "gpu_util"),
        public_ip=_address(row, "public_ipaddr"),  # seen with a line feed at its end
        direct_ssh_port=_direct_port(row.get("ports")),
        ssh_host=_host(row, "ssh_host"),
        ssh_port=_port(row, "ssh_port"),
        start_at=size(row, "start_date"),
        end_at=size(row, "end_date"),
    )


def _storage_dph(row: Row) -> Micros | None:
    """Read what storage costs per hour; the total is not on every row."""
    total = price(row, "storage_total_cost")
    if total is not None:
        return total
    usd_gb_month, disk_gb = size(row, "storage_cost"), size(row, "disk_space")
    if usd_gb_month is None or disk_gb is None:
        return None
    return _micros(usd_gb_month * disk_gb / HOURS_PER_MONTH)


def _direct_port(ports: object) -> int | None:
    """Read the host's port for sshd: `{"22/tcp": [{"HostPort": "40112"}, …]}`.

    Before and after a run `ports` is `{}`, null or absent; HostPort is text.
    """
    bindings = ports.get(SSH_PORT_KEY) if isinstance(ports, dict) else None
    for binding in bindings if isinstance(bindings, list) else [bindings]:
        if isinstance(binding, dict) and (port := _port(binding, "HostPort")) is not None:
            return port
    return None


def _port(row: Row, name: str) -> int | None:
    port = whole(row, name)
    return port if port is not None and 0 < port < 65536 else None


def _address(row: Row, name: str) -> str | None:
    value = text(row, name)
    try:
        return str(ipaddress.ip_address(value or ""))
    except ValueError:
        return None


def _host(row: Row, name: str) -> str | None:
    value = text(row, name)
    return value if value is not None and _HOST_NAME.fullmatch(value) else _address(row, name)


# -- account and keys --------------------------------------------------------------------


def account_from(document: object) -> Account:
    """Return the account.

    Raises:
        ContractChanged: nothing in the answer speaks of one.
    """
    fields = document if isinstance(document, dict) else {}
    account = Account(
        user_id=identity(fields, "id"),
        email=text(fields, "email"),
        credit=_micros(number(fields, "credit")),  # below zero once storage has eaten it up
    )
    if account == Account():
        raise ContractChanged(f"the account was answered with {_shape(document)}")
    return account


def ssh_keys_from(document: object) -> list[SshKey]:
    """Return the keys that are not deleted; a row that cannot be read is left out.

    A list, or `{"ssh_keys": …}` with a list or the text of one (VAST_API 6).

    Raises:
        ContractChanged: there is no list of keys.
    """
    rows = document.get("ssh_keys") if isinstance(document, dict) else document
    if isinstance(rows, str):
        rows = parse_json(rows.encode())
    if not isinstance(rows, list):
        raise ContractChanged(f"the ssh keys were answered with {_shape(document)}")
    return list(_ssh_keys(rows))


def _ssh_keys(rows: list[object]) -> Iterator[SshKey]:
    for row in rows:
        if not isinstance(row, dict) or row.get("deleted_at"):
            continue
        key_id = identity(row, "id")
        public_key = text(row, "public_key") or text(row, "key")
        if key_id is not None and public_key is not None:
            yield SshKey(key_id=key_id, public_key=public_key)


# -- one field ---------------------------------------------------------------------------


def convert(value: object, kind: type[T]) -> T | None:
    """Return `value` as `kind`, from text if need be, or None when it is nothing of the kind."""
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError:
        return None


def number(row: Row, name: str) -> float | None:
    """Read a finite number."""
    value = convert(row.get(name), float)
    return value if value is not None and math.isfinite(value) else None


def size(row: Row, name: str) -> float | None:
    """Read a number that cannot be below zero; Vast writes -1 for "unknown"."""
    value = number(row, name)
    return value if value is not None and value >= 0 else None


def whole(row: Row, name: str) -> int | None:
    """Read a count, or a size in whole units; fractions are rounded."""
    value: float | None = convert(row.get(name), int)
    if value is None:
        value = size(row, name)
    return round(value) if value is not None and 0 <= value <= MAX_INTEGER else None


def identity(row: Row, name: str) -> int | None:
    """Read an id: a positive whole number that is never rounded."""
    value = convert(row.get(name), int)
    return value if value is not None and 0 < value <= MAX_INTEGER else None


def price(row: Row, name: str) -> Micros | None:
    """Read dollars per hour."""
    return _micros(size(row, name))


def _micros(usd: float | None) -> Micros | None:
    return from_usd(usd) if usd is not None and abs(usd) <= MAX_USD else None


def flag(row: Row, name: str) -> bool | None:
    """Read a truth value, also from 0, 1 and text."""
    value = row.get(name)
    return convert(int(value) if isinstance(value, float) and value in (0, 1) else value, bool)


def text(row: Row, name: str) -> str | None:
    """Read a text without white space around it; None when it is empty.

    A half surrogate pair cannot be stored or printed, and is replaced.
    """
    value = row.get(name)
    if not isinstance(value, str):
        return None
    return value.encode("utf-8", "replace").decode().strip() or None


def _shape(value: object) -> str:
    """Describe a value by its form, never by its content."""
    if isinstance(value, dict):
        return f"an object of {', '.join(sorted(map(str, value))[:8]) or 'nothing'}"
    return {list: "a list", str: "a text", type(None): "null"}.get(type(value), "a bare value")
