"""A daemon that nobody uses: resident memory and CPU, without rentals and with a hundred."""

import time

from bench import fleet
from bench.report import Row
from bench.timing import on_cpu_s, resident_mb
from support.installed import Installed, installed

MEMORY_LIMITS_MB = {0: 60.0, 100: 90.0}  # DESIGN 5
CPU_LIMIT_PERCENT = 0.3  # DESIGN 5
SETTLED_S = 2.0  # start-up work is over
WATCHED_S = {0: 10.0, 100: 45.0}  # with rentals: two cycles of 20 s fit


def measure(*, quick: bool) -> list[Row]:
    """Return memory and CPU at rest. The intervals are the defaults, not those of a fast test."""
    rows = []
    for count in (0,) if quick else MEMORY_LIMITS_MB:
        with installed() as vast:
            (vast.root / "config.toml").write_text("")
            vast.start()
            if count:
                fleet.rent_on_simulator(vast, count)
            cpu = _cpu_percent(vast, 1.0 if quick else WATCHED_S[count])
            assert vast.daemon is not None
            memory = resident_mb(vast.daemon.pid)
        at = f"daemon at rest, {count} rentals"
        rows += [
            Row(what=f"{at}: memory", ours=memory, unit="MB", limit=MEMORY_LIMITS_MB[count]),
            Row(what=f"{at}: CPU", ours=cpu, unit="%", limit=CPU_LIMIT_PERCENT),
        ]
    return rows


def _cpu_percent(vast: Installed, seconds: float) -> float:
    assert vast.daemon is not None
    time.sleep(SETTLED_S)
    before, began = on_cpu_s(vast.daemon.pid), time.perf_counter()
    time.sleep(seconds)
    return (on_cpu_s(vast.daemon.pid) - before) / (time.perf_counter() - began) * 100
