"""Writes offers and contracts as the JSON rows Vast sends, and as our own plain data.

Field names, units and oddities are VAST_API 2.4 and 4.3: memory in "MB" as the card reports it,
a port number as a string, addresses that may end in a newline.
"""

from vastd.core.market import Instance, Offer
from vastd.core.money import Micros, from_usd, to_usd
from vastd.simulator import flaws
from vastd.simulator.contracts import Contract
from vastd.simulator.machines import Chunk, Machine, disk_micros_h
from vastd.simulator.stages import BILLS_GPU, Stage

Row = dict[str, object]


def machine_row(machine: Machine, num_gpus: int) -> Row:
    """Return the fields that offers and instances have in common and that never change."""
    return {
        **_gpu_fields(machine, num_gpus),
        **_computer_fields(machine, num_gpus / machine.num_gpus),
        "machine_id": machine.machine_id,
        "host_id": machine.host_id,
        "hosting_type": 1 if machine.datacenter else 0,
        "cluster_id": None,
        "resource_type": "gpu",
        "storage_cost": machine.storage_usd_gb_month,
        "inet_up": machine.inet_up_mbps,
        "inet_down": machine.inet_down_mbps,
        "inet_up_cost": machine.inet_up_usd_gb,
        "inet_down_cost": machine.inet_down_usd_gb,
        "direct_port_count": machine.direct_port_count,
        "static_ip": machine.static_ip,
        "verification": machine.verification,
        "verified": machine.verification == "verified",
        "reliability": machine.reliability,
        "reliability2": machine.reliability,
        "reliability_mult": round(machine.reliability**2, 6),
        "geolocation": machine.geolocation,
        "geolocode": sum(machine.country.encode()),
        "start_date": machine.listed_at,
        "end_date": machine.end_at,
        "logo": "/static/logos/vastai_small2.png",
        "webpage": None,
        "external": None,
        "vms_enabled": False,
    }


def _gpu_fields(machine: Machine, num_gpus: int) -> Row:
    gpu = machine.gpu
    return {
        "gpu_name": gpu.name,
        "gpu_arch": "nvidia",
        "num_gpus": num_gpus,
        "gpu_ram": machine.gpu_ram_mb,
        "gpu_frac": num_gpus / machine.num_gpus,
        "gpu_lanes": 16,
        "gpu_mem_bw": gpu.mem_bw_gb_s,
        "gpu_max_power": float(gpu.max_power_w),
        "gpu_max_temp": 88.0,
        "gpu_display_active": False,
        "compute_cap": gpu.compute_cap,
        "cuda_max_good": machine.cuda_max_good,
        "driver_version": machine.driver_version,
        "driver_vers": _driver_number(machine.driver_version),
        "bw_nvlink": gpu.nvlink_gb_s,
        "total_flops": round(gpu.tflops * num_gpus, 3),
        "dlperf": round(machine.dlperf_per_gpu * num_gpus, 6),
    }


def _computer_fields(machine: Machine, share: float) -> Row:
    return {
        "pci_gen": machine.pcie_gen,
        "pcie_bw": round(machine.pcie_gen * 5.9, 1),
        "cpu_name": machine.cpu_name,
        "cpu_arch": "amd64",
        "cpu_cores": machine.cpu_cores,
        "cpu_cores_effective": machine.cpu_cores * share,
        "cpu_ghz": machine.cpu_ghz,
        "cpu_ram": machine.cpu_ram_mb,
        "has_avx": 1,
        "mobo_name": machine.mobo_name,
        "os_version": "22.04",
        "ubuntu_version": "22.04",
        "disk_bw": machine.disk_bw_mbps,
        "disk_name": machine.disk_name,
    }


def standing_row(offer_id: int, chunk: Chunk) -> Row:
    """Return the part of an offer's row that stays as long as the offer."""
    machine = chunk.machine
    return {
        **machine_row(machine, chunk.num_gpus),
        "id": offer_id,
        "ask_contract_id": offer_id,
        "bundle_id": machine.machine_id * 100 + chunk.num_gpus,
        "rn": 1,
        "gpu_total_ram": machine.gpu_ram_mb * chunk.num_gpus,
        "gpu_ids": list(chunk.gpu_ids),
        "disk_space": round(machine.disk_space_gb * chunk.num_gpus / machine.num_gpus, 1),
        "internet_up_cost_per_tb": machine.inet_up_usd_gb * 1_000,
        "internet_down_cost_per_tb": machine.inet_down_usd_gb * 1_000,
        "discount_rate": machine.discount_rate,
        "discounted_hourly": 0.0,
        "credit_discount_max": machine.discount_rate,
        "expected_reliability": machine.reliability,
        "is_vm_deverified": False,
        "time_remaining": "",
        "time_remaining_isbid": "",
        "bundled_results": None,
        "hostname": None,
    }


def offer_row(
    standing: Row,
    chunk: Chunk,
    *,
    now: float,
    disk_gb: float,
    interruptible: bool,
    min_bid: Micros,
    rented: bool,
) -> Row:
    """Return one row of a search, priced with `disk_gb` of disk."""
    machine = chunk.machine
    gpu = min_bid if interruptible else chunk.gpu_micros_h
    disk = disk_micros_h(machine.storage_usd_gb_month, disk_gb)
    total = to_usd(gpu + disk)
    discounted = to_usd(round(gpu * (1 - machine.discount_rate)) + disk)
    dlperf, flops = machine.dlperf_per_gpu * chunk.num_gpus, machine.gpu.tflops * chunk.num_gpus
    discounts = {"discountTotalHour": discounted, "discountedTotalPerHour": discounted}
    price = {**_price(gpu, disk), **discounts}
    return {
        **standing,
        "duration": max(0.0, machine.end_at - now),
        "vram_costperhour": gpu / 1_000_000 / (machine.gpu_ram_mb * chunk.num_gpus),
        "storage_total_cost": to_usd(disk),
        "dph_base": to_usd(gpu),
        "dph_total": total,
        "dph_total_adj": total,
        "min_bid": to_usd(min_bid),
        "is_bid": interruptible,
        "discounted_dph_total": discounted,
        "dlperf_per_dphtotal": round(dlperf / max(total, 1e-6), 3),
        "flops_per_dphtotal": round(flops / max(total, 1e-6), 3),
        "search": price,
        "instance": dict(price),
        "score": round(dlperf / max(total, 1e-6) * machine.reliability**4, 4),
        "rentable": not rented,
        "rented": rented,
    }


def _price(gpu: int, disk: int) -> dict[str, float]:
    return {
        "gpuCostPerHour": to_usd(gpu),
        "diskHour": to_usd(disk),
        "totalHour": to_usd(gpu + disk),
    }


def to_offer(row: Row, chunk: Chunk) -> Offer:
    """Return our own form of a row."""
    machine = chunk.machine
    return Offer(
        offer_id=_int(row["ask_contract_id"]),
        machine_id=machine.machine_id,
        host_id=machine.host_id,
        gpu_name=machine.gpu.name,
        num_gpus=chunk.num_gpus,
        gpu_ram_mb=machine.gpu_ram_mb,
        cpu_cores=_float(row["cpu_cores_effective"]),
        cpu_ram_mb=machine.cpu_ram_mb,
        disk_space_gb=_float(row["disk_space"]),
        dph=from_usd(_float(row["dph_total"])),
        dph_base=from_usd(_float(row["dph_base"])),
        min_bid=from_usd(_float(row["min_bid"])),
        storage_usd_gb_month=machine.storage_usd_gb_month,
        inet_down_mbps=machine.inet_down_mbps,
        inet_up_mbps=machine.inet_up_mbps,
        inet_down_usd_gb=machine.inet_down_usd_gb,
        inet_up_usd_gb=machine.inet_up_usd_gb,
        reliability=machine.reliability,
        compute_cap=machine.gpu.compute_cap,
        cuda_max_good=machine.cuda_max_good,
        driver_version=machine.driver_version,
        dlperf=_float(row["dlperf"]),
        total_flops=_float(row["total_flops"]),
        geolocation=machine.geolocation,
        verified=machine.verification == "verified",
        rentable=row["rentable"] is True,
        direct_port_count=machine.direct_port_count,
        duration_s=_float(row["duration"]),
    )


def instance_row(contract: Contract, *, now: float, min_bid: Micros) -> Row:
    """Return one row of the instance list."""
    machine, order = contract.machine, contract.order
    up_s = now - contract.runs[-1].start_at if contract.is_up else None
    return {
        **machine_row(machine, contract.chunk.num_gpus),
        **_price_fields(contract, min_bid=min_bid),
        **_access_fields(contract),
        **_telemetry_fields(contract, now),
        "id": contract.instance_id,
        "bundle_id": machine.machine_id * 100 + contract.chunk.num_gpus,
        "label": contract.label,
        "template_id": None,
        "template_hash_id": order.template_hash_id,
        "template_name": None,
        "actual_status": contract.actual_status,
        "intended_status": contract.intended,
        "cur_state": contract.cur_state,
        "next_state": contract.next_state,
        "status_msg": status_message(contract, now),
        "image_uuid": order.image,
        "image_args": list(order.args),
        "image_runtype": order.runtype,
        "extra_env": [[key, value] for key, value in order.env.items()],
        "onstart": order.onstart or None,
        "jupyter_token": None,
        "gpu_totalram": machine.gpu_ram_mb * contract.chunk.num_gpus,
        "country_code": machine.country,
        "start_date": contract.created_at,
        "duration": max(0.0, machine.end_at - now),
        "uptime_mins": None if up_s is None else round(up_s / 60, 2),
        "time_remaining": "",
        "time_remaining_isbid": "",
        "client_run_time": 1.1,
        "host_run_time": 2_592_000.0,
        "rentable": True,
        "score": 0.0,
        "volume_info": [],
    }


def _price_fields(contract: Contract, *, min_bid: Micros) -> Row:
    gpu, disk = contract.gpu_micros_h, contract.disk_micros_h
    paid_gpu = gpu if contract.stage in BILLS_GPU else 0
    return {
        "is_bid": contract.bid is not None,
        "min_bid": to_usd(min_bid),
        "dph_base": to_usd(gpu),
        "dph_total": to_usd(gpu + disk),
        "storage_total_cost": to_usd(disk),
        "vram_costperhour": 0.0,
        "credit_balance": None,
        "credit_discount": None,
        "credit_discount_max": contract.machine.discount_rate,
        "search": _price(gpu, disk),
        "instance": _price(paid_gpu, disk),
        "inet_up_billed": None,
        "inet_down_billed": None,
    }


def _access_fields(contract: Contract) -> Row:
    machine, access = contract.machine, contract.access
    direct_port = contract.direct_port if access is None else access.direct_port
    if not contract.is_up:
        direct_port = None
    ip = machine.public_ip if access is None else access.public_ip
    ports: dict[str, list[dict[str, str]]] = {}
    if direct_port is not None:
        ports["22/tcp"] = _mapping(direct_port)
        if access is None:
            for index, port in enumerate(_asked_ports(contract.order.env), start=1):
                ports[port] = _mapping(direct_port + index)
    proxy = machine.proxy_index
    return {
        "ssh_host": f"ssh{proxy}.vast.ai" if access is None else access.ssh_host,
        "ssh_idx": str(proxy),
        "ssh_port": proxy_port(contract) if access is None else access.ssh_port,
        "public_ipaddr": ip + ("\n" if machine.ip_has_newline else ""),
        "local_ipaddrs": "192.168.1.20 172.17.0.1 ",
        "ports": ports,
        "direct_port_start": -1 if direct_port is None else direct_port,
        "direct_port_end": -1 if direct_port is None else direct_port,
        "machine_dir_ssh_port": direct_port,
    }


def _mapping(host_port: int) -> list[dict[str, str]]:
    return [{"HostIp": at, "HostPort": str(host_port)} for at in ("0.0.0.0", "::")]


def _asked_ports(env: dict[str, str]) -> list[str]:
    """Return the container ports asked for as `-p 8080:8080` or `-p 53:53/udp` (VAST_API 3.1)."""
    asked = [key.removeprefix("-p ").rpartition(":")[2] for key in env if key.startswith("-p ")]
    return [port if "/" in port else f"{port}/tcp" for port in asked if port]


def proxy_port(contract: Contract) -> int:
    """Return the proxy's port of an instance, before the jupyter shift; it never changes."""
    return 10_000 + contract.instance_id * 2 % 30_000


def _telemetry_fields(contract: Contract, now: float) -> Row:
    busy = contract.is_up and now < contract.busy_until
    # Zeros come on alternating polls (VAST_API 4.3); every fourth second reads as idle here.
    util = (0.0 if int(now) % 4 == 0 else 93.0) if busy else 0.0
    return {
        "gpu_util": util if contract.is_up else None,
        "gpu_temp": (71.0 if busy else 38.0) if contract.is_up else None,
        "cpu_util": 0.12 if contract.is_up else None,
        "mem_usage": 2.4 if contract.is_up else None,
        "mem_limit": round(contract.machine.cpu_ram_mb / 1_000, 1),
        "vmem_usage": 0.0,
        "disk_space": flaws.disk_gb(contract),
        "disk_usage": 3.1 if contract.is_up else -1,
        "disk_util": round(3.1 / flaws.disk_gb(contract), 4) if contract.is_up else -1,
    }


def status_message(contract: Contract, now: float) -> str | None:
    """Return `status_msg`: docker's pull lines while loading, else what was last said."""
    if contract.stage is Stage.LOADING:
        done = contract.pull_progress(now)
        layer = f"{contract.instance_id * 2_654_435_761 % 2**48:012x}"
        if done < 0.1:
            return f"{layer}: Pulling fs layer"
        if done < 0.9:
            return f"{layer}: Downloading [{'=' * int(done * 40)}>]  {done * 100:.0f}%"
        return f"{layer}: Pull complete"
    return contract.message


def to_instance(row: Row) -> Instance:
    """Return our own form of an instance row."""
    ports = row["ports"]
    mapped = ports.get("22/tcp") if isinstance(ports, dict) else None
    return Instance(
        instance_id=_int(row["id"]),
        machine_id=_int(row["machine_id"]),
        label=_text(row["label"]),
        status=_text(row["actual_status"]),
        intended_status=_text(row["intended_status"]),
        cur_state=_text(row["cur_state"]),
        next_state=_text(row["next_state"]),
        status_msg=_text(row["status_msg"]),
        image=_text(row["image_uuid"]),
        runtype=_text(row["image_runtype"]),
        gpu_name=_text(row["gpu_name"]),
        num_gpus=_int(row["num_gpus"]),
        gpu_ram_mb=_int(row["gpu_ram"]),
        disk_space_gb=_float(row["disk_space"]),
        disk_usage_gb=_float(row["disk_usage"]),
        dph=from_usd(_float(row["dph_total"])),
        storage_dph=from_usd(_float(row["storage_total_cost"])),
        is_bid=row["is_bid"] is True,
        min_bid=from_usd(_float(row["min_bid"])),
        gpu_util=None if row["gpu_util"] is None else _float(row["gpu_util"]),
        public_ip=str(row["public_ipaddr"]).strip(),
        direct_ssh_port=int(mapped[0]["HostPort"]) if mapped else None,
        ssh_host=_text(row["ssh_host"]),
        ssh_port=_int(row["ssh_port"]),
        start_at=_float(row["start_date"]),
        end_at=_float(row["end_date"]),
    )


def _driver_number(version: str) -> int:
    # VAST_API 2.3: every part zero-padded to three digits.
    parts = [*version.split("."), "0"][:3]
    return int("".join(part.zfill(3) for part in parts))


def _int(value: object) -> int:
    assert isinstance(value, int)
    return value


def _float(value: object) -> float:
    assert isinstance(value, int | float)
    return float(value)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
