"""The physical boxes of the simulated market: immutable facts, as a host would publish them."""

from msgspec import Struct

from vastd.core.money import Micros
from vastd.simulator.catalogue import GpuModel


class Machine(Struct, frozen=True, kw_only=True):
    """One box. Prices are micro-dollars per hour and GPU; latencies are seconds before scaling."""

    machine_id: int
    host_id: int
    gpu: GpuModel
    gpu_ram_mb: int  # the model's usual memory or its second form
    num_gpus: int
    gpu_micros_h: Micros
    min_bid_micros_h: Micros
    discount_rate: float
    storage_usd_gb_month: float
    inet_down_mbps: float
    inet_up_mbps: float
    inet_down_usd_gb: float
    inet_up_usd_gb: float
    cpu_name: str
    cpu_cores: int
    cpu_ghz: float
    cpu_ram_mb: int
    mobo_name: str
    disk_space_gb: float
    disk_bw_mbps: float
    disk_name: str
    reliability: float
    verification: str  # "verified", "unverified", "deverified"
    datacenter: bool
    static_ip: bool
    direct_port_count: int  # 0: only the proxy reaches it
    geolocation: str  # "Region, CC"
    country: str
    cuda_max_good: float
    driver_version: str
    dlperf_per_gpu: float
    pcie_gen: float
    public_ip: str
    ip_has_newline: bool  # VAST_API 4.3: `public_ipaddr` may end in a newline
    proxy_index: int
    listed_at: float  # epoch seconds
    end_at: float  # epoch seconds: the host's contract ends
    # Latencies
    accept_s: float  # create to the first reported status
    pull_s: float  # image pull, when not cached
    start_s: float  # container start until `running`
    stop_s: float
    destroy_s: float
    sshd_lag_s: float  # `running` until sshd answers
    outbid_keeps_intent: bool  # VAST_API 8.2 no. 7: pattern (b) when true, else (a)


class Chunk(Struct, frozen=True, kw_only=True):
    """A set of GPUs of one machine that is offered as a whole. Chunks of a machine overlap."""

    machine: Machine
    gpu_ids: tuple[int, ...]

    @property
    def num_gpus(self) -> int:
        return len(self.gpu_ids)

    @property
    def gpu_micros_h(self) -> Micros:
        return Micros(self.machine.gpu_micros_h * self.num_gpus)

    @property
    def min_bid_micros_h(self) -> Micros:
        return Micros(self.machine.min_bid_micros_h * self.num_gpus)

    def overlaps(self, other: "Chunk") -> bool:
        """Return whether both need one and the same GPU."""
        return self.machine.machine_id == other.machine.machine_id and not set(
            self.gpu_ids
        ).isdisjoint(other.gpu_ids)


def disk_micros_h(storage_usd_gb_month: float, disk_gb: float) -> Micros:
    """Return what `disk_gb` cost per hour; a month is 720 hours (VAST_API 2.4)."""
    return Micros(round(storage_usd_gb_month * disk_gb / 720 * 1_000_000))
