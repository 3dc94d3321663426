"""Draws the machines of a market from a seed, and the chunks each of them offers.

The mix follows public recordings of Vast's market in 2026: mostly verified consumer machines with
one to eight GPUs, a tail of data-centre boxes, and some that a careful renter avoids (unverified,
unreliable, slow, old driver, no direct ports).
"""

import random
from typing import Final

from vastd.core.money import Micros, from_usd
from vastd.simulator.catalogue import GPU_MODELS, GpuModel
from vastd.simulator.machines import Chunk, Machine

DAY_S: Final = 86_400.0

# (region, country, weight): where Vast machines stood in recorded offers; weights are guesses.
PLACES: Final = (
    ("California", "US", 9), ("Texas", "US", 6), ("Washington", "US", 5), ("Ohio", "US", 3),
    ("Quebec", "CA", 5), ("British Columbia", "CA", 2), ("Sweden", "SE", 5), ("Norway", "NO", 4),
    ("Germany", "DE", 5), ("Poland", "PL", 4), ("Spain", "ES", 3), ("France", "FR", 3),
    ("United Kingdom", "GB", 3), ("Bulgaria", "BG", 3), ("Ukraine", "UA", 2), ("Japan", "JP", 4),
    ("South Korea", "KR", 4), ("Taiwan", "TW", 4), ("Hong Kong", "HK", 2), ("Vietnam", "VN", 4),
    ("India", "IN", 2), ("Australia", "AU", 2), ("Brazil", "BR", 1), ("China", "CN", 3),
)  # fmt: skip
# (driver, highest CUDA it runs): NVIDIA's release notes.
DRIVERS: Final = (
    ("535.183.01", 12.2), ("550.127.05", 12.4), ("555.58.02", 12.5), ("560.35.03", 12.6),
    ("565.77", 12.7), ("570.133.20", 12.8), ("575.57.08", 12.9), ("580.65.06", 13.0),
)  # fmt: skip
CPUS: Final = (
    ("AMD EPYC 7542 32-Core Processor", 64, 2.9), ("AMD EPYC 7713 64-Core Processor", 128, 2.0),
    ("AMD EPYC 9354 32-Core Processor", 64, 3.2), ("AMD Ryzen 9 5950X 16-Core Processor", 32, 3.4),
    ("AMD Ryzen Threadripper 3970X", 64, 3.7), ("Xeon E5-2680 v4", 56, 2.4),
    ("Xeon Gold 6148", 80, 2.4), ("Intel Core i9-13900K", 32, 3.0),
)  # fmt: skip
BOARDS: Final = ("ROMED8-2T", "X570 AORUS", "H12SSL-i", "X99-F8", "PRO WS WRX80E", "MZ72-HB0")
DISKS: Final = ("Samsung SSD 990 PRO", "WDC WDS200T2B0A", "KIOXIA KCD6", "nvme", "Micron 7450")


def draw_machines(seed: int, count: int, now: float) -> list[Machine]:
    """Return `count` machines, the same for the same seed, count and time."""
    rng = random.Random(f"machines:{seed}")
    total = sum(model.share for model in GPU_MODELS)
    # Every model appears at least once, so that a search for any card finds something.
    models = list(GPU_MODELS)[:count]
    weights = [model.share / total for model in GPU_MODELS]
    models += rng.choices(GPU_MODELS, weights, k=max(0, count - len(models)))
    rng.shuffle(models)
    return [_draw(rng, model, 40_000 + 7 * index, now) for index, model in enumerate(models)]


def chunks_of(machine: Machine) -> list[Chunk]:
    """Return the overlapping sets of GPUs a machine is offered as, largest first."""
    sizes: list[int] = []
    size = machine.num_gpus
    while size >= 1:
        sizes.append(size)
        size //= 2
    chunks = [Chunk(machine=machine, gpu_ids=tuple(range(size))) for size in sizes]
    # The upper half as well, so that renting one half leaves something to rent.
    half = machine.num_gpus // 2
    if half:
        chunks.append(Chunk(machine=machine, gpu_ids=tuple(range(half, machine.num_gpus))))
    return chunks


def _draw(rng: random.Random, model: GpuModel, machine_id: int, now: float) -> Machine:
    counts = model.counts
    num_gpus = rng.choices(counts, [2.0 ** -(i * 0.5) for i in range(len(counts))])[0]
    datacenter = model.datacenter and rng.random() < 0.8
    region, country = _place(rng)
    driver, cuda = rng.choice([d for d in DRIVERS if d[1] >= model.min_cuda])
    cpu_name, cores, ghz = rng.choice(CPUS)
    gpu_micros = _price(rng, model)
    memory = model.memory_mib
    if model.name in ("A100 SXM4", "A100 PCIE") and rng.random() < 0.3:
        memory, gpu_micros = 40_960, Micros(gpu_micros * 6 // 10)
    good = datacenter or rng.random() < 0.8
    down = rng.uniform(800, 8_000) if datacenter else rng.lognormvariate(6.3, 0.8)
    # Longer than a screen on purpose: the order of the draws is part of what a seed means, and one
    # call keeps it readable from top to bottom.
    return Machine(
        machine_id=machine_id,
        host_id=9_000 + rng.randrange(4_000),
        gpu=model,
        gpu_ram_mb=memory,
        num_gpus=num_gpus,
        gpu_micros_h=gpu_micros,
        min_bid_micros_h=Micros(gpu_micros * rng.randrange(30, 75) // 100),
        discount_rate=rng.choice((0.2, 0.3, 0.4)),
        storage_usd_gb_month=rng.choice((0.05, 0.1, 0.1, 0.15, 0.2, 0.3)),
        inet_down_mbps=round(max(25.0, min(down, 9_500.0)), 1),
        inet_up_mbps=round(max(15.0, min(down * rng.uniform(0.2, 1.0), 9_500.0)), 1),
        inet_down_usd_gb=rng.choice((0.0, 0.0, 0.002, 0.005, 0.01)),
        inet_up_usd_gb=rng.choice((0.0, 0.002, 0.005, 0.01, 0.02)),
        cpu_name=cpu_name,
        cpu_cores=cores,
        cpu_ghz=ghz,
        cpu_ram_mb=rng.choice((64, 128, 256, 512)) * 1_000 * max(1, num_gpus // 4),
        mobo_name=rng.choice(BOARDS),
        disk_space_gb=round(rng.uniform(60, 400) * max(1, num_gpus), 1),
        disk_bw_mbps=round(rng.uniform(300, 6_500), 1),
        disk_name=rng.choice(DISKS),
        reliability=round(rng.uniform(0.985, 0.9995) if good else rng.uniform(0.75, 0.985), 6),
        verification="verified" if good or rng.random() < 0.4 else _unproven(rng),
        datacenter=datacenter,
        static_ip=datacenter or rng.random() < 0.4,
        direct_port_count=rng.choice((0, 3, 12, 49, 100, 250)) if not datacenter else 250,
        geolocation=f"{region}, {country}",
        country=country,
        cuda_max_good=cuda,
        driver_version=driver,
        dlperf_per_gpu=round(model.dlperf * rng.uniform(0.85, 1.1), 6),
        pcie_gen=rng.choice((3.0, 4.0, 4.0, 5.0)),
        public_ip=f"203.0.113.{rng.randrange(1, 255)}",  # RFC 5737: documentation only
        ip_has_newline=rng.random() < 0.2,
        proxy_index=rng.randrange(1, 9),
        listed_at=now - rng.uniform(1, 200) * DAY_S,
        end_at=round(now + rng.uniform(2, 180) * DAY_S),
        accept_s=round(rng.uniform(4, 10), 3),
        pull_s=round(rng.uniform(8, 60) + 40_000 / max(down, 100.0), 3),
        start_s=round(rng.uniform(3, 15), 3),
        stop_s=round(rng.uniform(1, 4), 3),
        destroy_s=round(rng.uniform(1, 8), 3),
        sshd_lag_s=round(rng.uniform(1, 45), 3),  # VAST_API 4.4: sshd may lag 30 to 60 s
        outbid_keeps_intent=rng.random() < 0.5,
    )


def _place(rng: random.Random) -> tuple[str, str]:
    region, country, _ = rng.choices(PLACES, [weight for *_, weight in PLACES])[0]
    return region, country


def _price(rng: random.Random, model: GpuModel) -> Micros:
    return from_usd(round(rng.triangular(model.low_usd_h, model.high_usd_h), 6))


def _unproven(rng: random.Random) -> str:
    return rng.choice(("unverified", "unverified", "unverified", "deverified"))
