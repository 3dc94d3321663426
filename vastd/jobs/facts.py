"""Reading the runner's answers: `name=value` lines, strictly.

A line the runner cannot have printed is a bug or a broken machine, and is said so; what the
*machine's tools* may leave out (a GPU's utilization, nvcc) is None.
"""

import re
from typing import Final

from vastd.core.lease import LeaseFacts
from vastd.errors import HardwareMismatch, RemoteCommandFailed
from vastd.jobs.heartbeat import parse_heartbeat
from vastd.jobs.port import BoxFacts, BoxJobState, Endpoint, GpuFacts, JobSnapshot

_LINE: Final = re.compile(r"([a-z_]+)=(.*)")
_KIB: Final = 1024


def parse_facts(body: bytes, endpoint: Endpoint) -> BoxFacts:
    """Return what a probe says.

    Raises:
        HardwareMismatch: nvidia-smi is missing, failed, or names no GPU.
        RemoteCommandFailed: the answer is not a probe's.
    """
    fields = _fields(body)
    if _whole(fields, "smi_exit") != 0:
        said = "; ".join(fields.get("smi_error", [])) or "nothing"
        raise HardwareMismatch(
            f"nvidia-smi does not work on the machine at {endpoint.host}: it said {said!r}",
            hint="the host's driver is broken or no GPU was given: take another offer",
        )
    gpus = [_gpu(line) for line in fields.get("gpu", []) if line.strip()]
    if not gpus:
        raise HardwareMismatch(f"nvidia-smi names no GPU on the machine at {endpoint.host}")
    return BoxFacts(
        route=endpoint.route,
        endpoint=endpoint,
        gpus=gpus,
        cuda_version=_first(fields, "cuda_version"),
        toolkit_version=_first(fields, "toolkit_version"),
        disk_free_bytes=_required(fields, "disk_free_kb") * _KIB,
        has_rsync="has_rsync" in fields,
        has_tmux="has_tmux" in fields,
        box_clock=float(_required(fields, "clock")),
    )


def parse_snapshot(body: bytes) -> JobSnapshot:
    """Return what a look at a job says.

    Raises:
        RemoteCommandFailed: the answer is not a snapshot's.
    """
    fields = _fields(body)
    word = _first(fields, "state") or ""
    if word not in set(BoxJobState):
        raise _not_ours(f"state={word}")
    beat = _first(fields, "heartbeat_hex")
    loads = [load for text in fields.get("gpu_util", []) if (load := _measure(text)) is not None]
    free = _whole(fields, "disk_free_kb")
    return JobSnapshot(
        state=BoxJobState(word),
        box_clock=float(_required(fields, "clock")),
        pid=_whole(fields, "pid") or None,
        exit_code=_whole(fields, "exit_code"),
        box_started_at=_whole(fields, "started_at"),
        box_ended_at=_whole(fields, "ended_at"),
        log_bytes=_whole(fields, "log_bytes") or 0,
        heartbeat=None if beat is None else parse_heartbeat(_from_hex(beat)),
        box_heartbeat_at=_whole(fields, "heartbeat_at"),
        gpu_util=sum(loads) / len(loads) if loads else None,
        disk_free_bytes=None if free is None else free * _KIB,
    )


def parse_lease(body: bytes) -> LeaseFacts:
    """Return what a machine says of its lease.

    Raises:
        RemoteCommandFailed: the answer is not one.
    """
    fields = _fields(body)
    expiry, hard = _whole(fields, "expiry"), _whole(fields, "hard")
    return LeaseFacts(
        box_clock=float(_required(fields, "clock")),
        box_expiry=None if expiry is None else float(expiry),
        box_hard=None if hard is None else float(hard),
        on_expiry=_first(fields, "on_expiry") or "",
        uncollected=tuple((_first(fields, "uncollected") or "").split()),
        guard_pid=_whole(fields, "guard"),
        instance=_first(fields, "instance"),
        has_key=_first(fields, "key") is not None,
        tool=_first(fields, "tool"),
    )


def _fields(body: bytes) -> dict[str, list[str]]:
    """Return the values by name, in the order they came."""
    fields: dict[str, list[str]] = {}
    for line in body.decode(errors="replace").splitlines():
        if not line:
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise _not_ours(line)
        fields.setdefault(match[1], []).append(match[2])
    return fields


def _gpu(line: str) -> GpuFacts:
    """Read one line of nvidia-smi's csv; "[N/A]" and the like cost only that field."""
    parts = [part.strip() for part in line.split(",")]
    memory = _measure(parts[1]) if len(parts) >= 5 else None
    if memory is None:
        raise HardwareMismatch(f"nvidia-smi does not say how much memory the GPU has: {line!r}")
    used = _measure(parts[2])
    return GpuFacts(
        name=parts[0],
        memory_mib=int(memory),
        memory_used_mib=None if used is None else int(used),
        util_percent=_measure(parts[3]),
        driver_version=parts[4] or None,
    )


def _measure(text: str) -> float | None:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(?: (?:MiB|%))?", text.strip())
    return None if match is None else float(match[1])


def _first(fields: dict[str, list[str]], name: str) -> str | None:
    return fields.get(name, [None])[0]


def _whole(fields: dict[str, list[str]], name: str) -> int | None:
    text = _first(fields, name)
    if text is None:
        return None
    try:
        return int(text.strip())
    except ValueError:
        raise _not_ours(f"{name}={text}") from None


def _required(fields: dict[str, list[str]], name: str) -> int:
    value = _whole(fields, name)
    if value is None:
        raise _not_ours(f"no {name}")
    return value


def _from_hex(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise _not_ours("heartbeat_hex") from None


def _not_ours(line: str) -> RemoteCommandFailed:
    return RemoteCommandFailed(
        f"the machine's answer cannot be read at {line[:100]!r}",
        exit_code=0,
        hint="this is a bug in vastd or a machine without the usual tools (df, stat, od)",
    )
