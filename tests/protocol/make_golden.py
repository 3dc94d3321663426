"""Write `golden/<method>.json`: a request and a full answer of every method of the table.

    python tests/protocol/make_golden.py

Run it after a change of the table and read the difference: a line that vanishes or changes is
a client that breaks. Values are chosen by field name below, so that the files also show people
what an answer looks like; a new field needs a line here only if its type says too little.
"""

import base64
import json
import sys
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect as types

from vastd_protocol.method import Method
from vastd_protocol.methods import every

FOLDER = Path(__file__).with_name("golden")

# `Struct.field` first, then the field alone.
VALUES: dict[str, Any] = {
    "CheckView.id": "vast_key",
    "CheckView.text": "Vast accepts the key; credit is $12.50",
    "CheckView.level": "warning",
    "CheckView.fix": "vastctl config set budget.per_day_usd=25",
    "ClientInfo.name": "vastctl",
    "ConfigSetParams.key": "timing.settle_s",
    "ConfigSetParams.value": 45,
    "AttemptView.blame": "host",
    "BlockView.by": "vastd",
    "BlockView.since": "2026-11-30T12:00:00Z",
    "BlockView.until": "2026-12-01T12:00:00Z",
    "HostBlockParams.reason": "its disk is too slow",
    "HostBlockParams.until": "2026-12-01T12:00:00Z",
    "SpeedView.source": "a project sent to it, bounded by your own network too",
    "ConfigView.path": "/home/ada/.config/vastd/config.toml",
    "EventListParams.limit": 50,
    "EventView.data": {"hours": 1.5, "offer_id": 4242, "note": None, "spot": False},
    "EventView.kind": "rental.ready",
    "EventView.reason": "ssh and gpu proven after 74 s",
    "ExecView.exit_code": 0,
    "Fact.value": 24,
    "FilePullParams.destination": "/home/ada/paper/results",
    "FilePullParams.sources": ["/workspace/project/results"],
    "FilePushParams.destination": "/workspace/project/data",
    "FilePushParams.sources": ["/home/ada/paper/data.csv"],
    "HeartbeatView.timestamp": "2026-11-30T12:20:00Z",
    "InventoryView.state": "fresh",
    "InventoryView.error": "Vast answered 502 at 11:58",
    "JobView.state": "succeeded",
    "JobView.name": "train-7b",
    "JobView.failure": "collection",
    "JobView.reason": "results/model.bin could not be verified",
    "LogView.offset": 4096,
    "LogReadParams.offset": -4096,
    "LogSubscribeParams.offset": 4096,
    "OfferSearchParams.query": "gpu_ram>=24 reliability>0.98",
    "PhaseCostView.phase": "booting",
    "Range.source": "7B parameters, LoRA, bf16",
    "RentalCollectParams.destination": "/home/ada/paper",
    "RentalDestroyParams.collect": False,
    "RentalDestroyParams.reason": "wrong dataset",
    "RentalStopParams.collect": False,
    "RentalStopParams.reason": "back tomorrow",
    "RentalView.wanted": "stopped",
    "PolicySetParams.changes": {"budget_usd": 5.0, "keep": True},
    "RentalView.phase": "ready",
    "RentalView.status": "running",
    "RentalView.status_msg": "success, running pytorch/pytorch",
    "SettingView.key": "timing.settle_s",
    "SettingView.source": "longest time a destroyed machine stayed in listings",
    "SettingView.value": 45,
    "SettingView.default": 30,
    "SettingView.origin": "file",
    "SshView.user": "root",
    "StepView.kind": "booted",
    "StepView.text": "ssh answered",
    "StrangerView.status": "running",
    "StrangerView.label": "somebody's own",
    "WatchdogView.action": "destroy",
    "WatchdogView.limit": "12 h",
    "WatchdogView.name": "max-runtime",
    "WatchdogView.watches": "hours since the machine was ready",
    "WatchdogView.why": "default of [defaults] max_runtime_s",
    "AttemptView.phase": "booting",
    "AttemptView.reason": "no ssh within 600 s",
    "CollectedView.destination": "/home/ada/paper/results",
    "CollectedView.files": 17,
    "CopyView.destination": "/workspace/project/data",
    "DoctorView.blockers": 0,
    "ExecParams.command": "nvidia-smi -L",
    "Fact.source": "--gpu-ram",
    "ReloadView.changed": ["timing.settle_s"],
    "argv": ["ssh", "-p", "41022", "-i", "/home/ada/.ssh/id_ed25519", "root@198.51.100.7"],
    "checkpoint_path": "checkpoints/last.pt",
    "command": ["python", "train.py", "--epochs", "3"],
    "confidence": "stated",
    "cost_usd": 0.412345,
    "cursor": 1207,
    "after": 1200,
    "data": base64.b64encode(b"epoch 1\n").decode(),
    "dph_usd": 0.412,
    "end_detail": "asked by the user",
    "end_reason": "user",
    "env": {"WANDB_MODE": "offline"},
    "estimated_cost_usd": 0.82,
    "eof": True,
    "exit_code": 0,
    "geolocation": "Sweden, SE",
    "gpu_name": "RTX 4090",
    "gpu_ram_gb": 24.0,
    "gpu_ram_mb": 24564,
    "host": "198.51.100.7",
    "host_key_alias": "vastd-31337",
    "heartbeat_path": "heartbeat.json",
    "identity_file": "/home/ada/.ssh/id_ed25519",
    "image": "pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime",
    "include": [".env.train"],
    "instance_id": 31337,
    "inventory_error": "Vast answered 502 at 11:58",
    "inventory_state": "fresh",
    "job": "train-7b",
    "job_id": "j-4kz9",
    "jobs_active": 1,
    "key": "timing.settle_s",
    "key_origin": "VAST_API_KEY",
    "known_hosts_file": "/home/ada/.local/state/vastd/ssh/31337",
    "label": "paper/train-7b vastd-1a2b3c4d-r-7m2x",
    "log_path": "/home/ada/.local/state/vastd/logs/j-4kz9.log",
    "machine_id": 8123,
    "missing": ["results/plot.png"],
    "name": "train-7b",
    "offer_id": 4242,
    "outputs": ["results"],
    "paths": ["/home/ada/paper/train.py"],
    "port": 41022,
    "project": "/home/ada/paper",
    "protocol_version": 1,
    "question": "how many epochs?",
    "renting_locked": "the store was damaged; see `vastctl reconcile`",
    "request_id": "0191d4f8-5d2c-7c3e-9f6a-2b1c3d4e5f60",
    "rental": "train-7b",
    "rental_id": "r-7m2x",
    "reason": "asked by the user",
    "results_dir": "/home/ada/paper/results",
    "roles": ["cheapest", "best_value"],
    "route": "direct",
    "severity": "warning",
    "socket": "/run/user/1000/vastd/vastd.sock",
    "source": "--gpu-ram",
    "state": "fresh",
    "state_dir": "/home/ada/.local/state/vastd",
    "stderr": "warning: slow disk\n",
    "stdout": "ok\n",
    "subscription_id": "s-3",
    "task": "finetune a 7B model with LoRA on 20k examples",
    "task_id": "T3",
    "vast_url": "https://console.vast.ai",
    "version": "0.1.0",
    "warnings": ["reliability of this host is below 0.95"],
    "why": "asked",
}
VALUES |= {
    "age_s": 4.2,
    "batch": 8,
    "bid_usd_h": 0.25,
    "budget_usd": 5.0,
    "bytes": 1048576,
    "collected_bytes": 1048576,
    "collected_files": 17,
    "considered": 312,
    "disk_gb": 50.0,
    "epoch": 1.0,
    "flags": ["datacenter"],
    "InventoryView.foreign": 1,
    "PlanParams.offers": False,
    "gpu_util": 97.0,
    "grace_s": 60.0,
    "heartbeat_interval_s": 60.0,
    "high": 24.0,
    "hours": 2.0,
    "idle_s": 1200.0,
    "inet_down_mbps": 812.5,
    "interruption_chance": 0.02,
    "RentalView.jobs": ["j-4kz9"],
    "log_bytes": 52_000,
    "loss": 0.731,
    "low": 18.0,
    "max_dph_usd": 0.6,
    "max_runtime_s": 43200.0,
    "mid": 21.0,
    "min_reliability": 0.98,
    "next_offset": 4104,
    "num_gpus": 1,
    "InventoryView.orphans": 0,
    "pid": 4711,
    "reasons": ["lowest estimated total"],
    "reliability": 0.991,
    "seconds": 74.5,
    "since_s": 3600.0,
    "size": 52_000,
    "step": 1200,
    "total_usd": 0.82,
    "wasted_usd": 0.03,
}
DISCOVERED = {"openrpc": "1.3.2", "info": {"title": "vastd", "version": "0.1.0"}, "methods": []}


def example(here: types.Type, name: str = "") -> Any:
    """Return plain JSON data that fits `here`, with every field of every object filled."""
    match here:
        case types.StructType(cls=cls, fields=fields):
            return {field.encode_name: _field(cls.__name__, field) for field in fields}
        case types.UnionType(types=options):
            return example(next(o for o in options if not isinstance(o, types.NoneType)), name)
        case types.ListType(item_type=item):
            return [example(item, name)]
        case types.DictType(value_type=value):
            return {"reliability" if name == "removed" else "KEY": example(value, name)}
        case types.BoolType():
            return True
        case types.IntType():
            return 3
        case types.FloatType():
            return 1.5
        case types.StrType():
            return "2026-11-30T12:00:00Z" if _is_instant(name) else f"some {name}"
    raise TypeError(f"{name}: no example for {here}")


def _field(owner: str, field: types.Field) -> Any:
    for key in (f"{owner}.{field.encode_name}", field.encode_name):
        if key in VALUES and _fits(field.type, VALUES[key]):
            return VALUES[key]
    return example(field.type, field.encode_name)


def _fits(here: types.Type, value: Any) -> bool:
    options = here.types if isinstance(here, types.UnionType) else (here,)
    kinds = {str: types.StrType, list: types.ListType, dict: types.DictType, bool: types.BoolType}
    wanted = kinds.get(type(value), (types.IntType, types.FloatType))
    return any(isinstance(option, wanted) for option in options)


def _is_instant(name: str) -> bool:
    return name in ("at", "as_of") or name.endswith(("_at", "_as_of"))


def golden(row: Method[Any, Any]) -> dict[str, Any]:
    """Return the golden file of one method."""
    params = msgspec.convert(example(types.type_info(row.params)), row.params)
    made = DISCOVERED if row.name == "rpc.discover" else example(types.type_info(row.result))
    result = msgspec.convert(made, row.result)
    return {
        "request": {
            "jsonrpc": "2.0",
            "id": 1,
            "method": row.name,
            "params": msgspec.to_builtins(params),
        },
        "reply": {"jsonrpc": "2.0", "id": 1, "result": msgspec.to_builtins(result)},
    }


def main() -> None:
    """Write all files, and remove those of methods that are gone."""
    rows = {row.name: row for row in every()}
    for path in FOLDER.glob("*.json"):
        if path.stem not in rows:
            path.unlink()
    for name, row in rows.items():
        text = json.dumps(golden(row), indent=2, ensure_ascii=False) + "\n"
        (FOLDER / f"{name}.json").write_text(text, encoding="utf-8")
    sys.stdout.write(f"{len(rows)} files in {FOLDER}\n")


if __name__ == "__main__":
    main()
