"""How things are timed: in turn with their peers, whole processes from outside, medians."""

import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path


def in_turn(*measures: Callable[[], float], runs: int) -> list[float]:
    """Return the median of each measure, taken A B A B … after one warm-up of each.

    Machines are noisy and their speed drifts: only what ran side by side can be compared.
    """
    for measure in measures:
        measure()
    rounds = [[measure() for measure in measures] for _ in range(runs)]
    return [statistics.median(taken) for taken in zip(*rounds, strict=True)]


def whole_process(argv: Sequence[str], env: Mapping[str, str], cwd: Path | None = None) -> float:
    """Return the milliseconds from start to end of a process that must succeed."""
    began = time.perf_counter()
    subprocess.run(
        argv, env=env, cwd=cwd, check=True, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    return (time.perf_counter() - began) * 1e3


def on_cpu_s(pid: int) -> float:
    """Return the seconds of CPU a process has had (Linux)."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def resident_mb(pid: int) -> float:
    """Return the resident memory of a process in MB (Linux)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise ValueError(f"process {pid} shows no resident memory")
