"""What a provider of machines shows us, as plain data: offers, orders, instances, accounts.

Sizes in MB are Vast's decimal MB (24 GB = 24,000). Prices are micro-dollars per hour.
Every field that Vast may leave out or garble is optional: a missing value costs that field,
never the row (VAST_API 2.4 and 4.3).
"""

from enum import StrEnum

from msgspec import Struct, field

from vastd.core.money import Micros


class Offer(Struct, frozen=True, kw_only=True):
    """A machine one could rent now, at a price (Vast: ask). Ids live minutes, not days."""

    offer_id: int
    machine_id: int
    host_id: int | None = None
    gpu_name: str  # Vast's own name, with spaces: "RTX 4090"
    num_gpus: int
    gpu_ram_mb: int  # per GPU
    cpu_cores: float | None = None  # our share
    cpu_ram_mb: int | None = None  # whole machine
    disk_space_gb: float | None = None  # available
    dph: Micros  # micro-dollars per hour, on demand, including the disk that was asked for
    dph_base: Micros | None = None  # GPU part alone
    min_bid: Micros | None = None  # per hour, for interruptible
    storage_usd_gb_month: float | None = None
    inet_down_mbps: float | None = None  # megabit per second
    inet_up_mbps: float | None = None
    inet_down_usd_gb: float | None = None
    inet_up_usd_gb: float | None = None
    reliability: float | None = None  # 0 to 1
    compute_cap: int | None = None  # times 100: 890 is 8.9
    cuda_max_good: float | None = None
    driver_version: str | None = None
    dlperf: float | None = None
    total_flops: float | None = None  # TFLOPS of all GPUs
    geolocation: str | None = None
    verified: bool | None = None
    rentable: bool = True
    direct_port_count: int | None = None
    duration_s: float | None = None  # until the host's contract ends


class OfferQuery(Struct, frozen=True, kw_only=True):
    """A search: `filters` in Vast's own form, `{"gpu_ram": {"gte": 24000}}`.

    `disk_gb` prices the disk inside `dph`; leaving it out understates every price.
    """

    filters: dict[str, dict[str, object]] = field(default_factory=dict)
    order: list[tuple[str, str]] = field(default_factory=lambda: [("dph_total", "asc")])
    limit: int = 64  # Vast returns at most 64 rows whatever is asked (seen 2026-09)
    disk_gb: float = 50.0
    interruptible: bool = False


class CreateSpec(Struct, frozen=True, kw_only=True):
    """Everything that goes into one create request."""

    offer_id: int
    image: str
    disk_gb: float
    label: str  # ends with our claim; at most 256 characters
    onstart: str = ""
    env: dict[str, str] = field(default_factory=dict)
    bid: Micros | None = None  # per hour; a number makes it interruptible, None on demand
    image_login: str | None = None  # secret; never stored or logged


class Created(Struct, frozen=True, kw_only=True):
    """The answer to a create: the instance exists and may bill from now on."""

    instance_id: int


class InstanceStatus(StrEnum):
    """Vast's `actual_status`, as far as known. An unseen word is kept as raw text instead."""

    CREATED = "created"
    LOADING = "loading"
    RUNNING = "running"
    REBOOTING = "rebooting"
    RESTARTING = "restarting"
    RECYCLING = "recycling"
    EXITED = "exited"
    STOPPED = "stopped"
    FROZEN = "frozen"
    OFFLINE = "offline"
    UNKNOWN = "unknown"
    SCHEDULING = "scheduling"


class Instance(Struct, frozen=True, kw_only=True):
    """One row of the provider's listing: a machine that exists, and may bill."""

    instance_id: int
    machine_id: int | None = None
    label: str | None = None
    status: str | None = None  # raw `actual_status`; None means accepted, nothing reported yet
    intended_status: str | None = None
    cur_state: str | None = None
    next_state: str | None = None
    status_msg: str | None = None
    image: str | None = None
    runtype: str | None = None  # "jupyter" inside shifts the proxy port by one
    gpu_name: str | None = None
    num_gpus: int | None = None
    gpu_ram_mb: int | None = None
    disk_space_gb: float | None = None
    disk_usage_gb: float | None = None
    dph: Micros | None = None  # billed rate while running, disk included
    storage_dph: Micros | None = None  # what goes on while stopped
    is_bid: bool | None = None
    min_bid: Micros | None = None
    gpu_util: float | None = None  # percent
    public_ip: str | None = None  # stripped
    direct_ssh_port: int | None = None  # host port of 22/tcp; changes at every start
    ssh_host: str | None = None  # proxy
    ssh_port: int | None = None  # proxy, before the jupyter shift
    start_at: float | None = None  # epoch seconds
    end_at: float | None = None  # contract end, epoch seconds


class Account(Struct, frozen=True, kw_only=True):
    """The renter's account. `credit` below zero stops every instance (VAST_API 7.2)."""

    user_id: int | None = None
    email: str | None = None
    credit: Micros | None = None


class SshKey(Struct, frozen=True, kw_only=True):
    """One public key registered with the account."""

    key_id: int
    public_key: str
