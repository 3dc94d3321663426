"""What vastd itself adds to a `run`: all its time but Vast's boot and pacing, the job and the proof.

The files are so small that sending and collecting them is counted as ours, too.
"""

import json
import time
from collections.abc import Sequence
from datetime import datetime

from bench.report import Row
from support.installed import Installed, installed

LIMIT_S = 2.0  # DESIGN 5
SSH_SPACING_S = 1.0  # of `support.installed`: between two tries of a key that Vast still installs
# What begins a time that is not ours -> what ends it.
OTHERS = {
    "create_sent": "instance_running",  # Vast: create, boot, and the listing that shows it
    "job_started": "job_finished",
    "destroy_tried": "found_absent",  # the settle time and two listings
}


def measure(*, quick: bool) -> list[Row]:
    """Return the overhead of real runs on the simulated Vast, from the times of their events."""
    taken = [_run() for _ in range(1 if quick else 3)]
    taken.sort(key=lambda spans: sum(spans.values()))
    spans = taken[len(taken) // 2]
    worst = max(spans, key=lambda kind: spans[kind])
    note = f"most of it until {worst}: {spans[worst]:.2f} s"
    total = sum(spans.values())
    return [Row(what="our own overhead in run", ours=total, unit="s", limit=LIMIT_S, note=note)]


def _run() -> dict[str, float]:
    with installed() as vast:
        vast.start()
        (vast.project / "job.py").write_text("print('done')\n")
        began = time.time()
        done = vast.vastctl(
            "run", "-y", "--name", "bench", "--hours", "1", "--gpu-ram", "24", "--budget", "2",
            "--", "python3", "job.py",
        )  # fmt: skip
        ended = time.time()
        assert done.returncode == 0, done.stderr
        return overhead(_events(vast), began, ended)


def _events(vast: Installed) -> list[tuple[str, float]]:
    told = vast.vastctl("--json", "events", "-n", "1000")
    assert told.returncode == 0, told.stderr
    found = json.loads(told.stdout)["events"]
    return [(event["kind"], datetime.fromisoformat(event["at"]).timestamp()) for event in found]


def overhead(events: Sequence[tuple[str, float]], began: float, ended: float) -> dict[str, float]:
    """Return our seconds, by the kind of event that ended each span; "end" is the client's exit."""
    spans: dict[str, float] = {}
    before, until = began, None
    attached = False
    for kind, at in (*events, ("end", ended)):
        if until is None:
            pause_s = SSH_SPACING_S if attached and kind == "became_ready" else 0.0
            spans[kind] = spans.get(kind, 0.0) + max(at - before - pause_s, 0.0)
        if until in (None, kind):
            until = OTHERS.get(kind)
        attached = attached or kind == "key_attached"
        before = at
    return spans
