"""A set-up of a machine: what to install, in which order, and what its checks said.

Rules
1. A set-up runs as a job: it is sent, started, watched, logged and recorded like any other, so
   neither a lost client nor a killed daemon loses it.
2. Each entry of `pip_phases` is one call of pip, in this order; the first that fails ends the
   set-up (ENV-03).
3. What the machine says is read from single lines of its log, which carry the job's id: a package
   that prints such a line by accident cannot speak for us.
"""

import re
import shlex
from collections.abc import Iterable
from itertools import islice
from typing import Final

from msgspec import Struct

PHASE_LIMIT_S: Final = 3600.0  # guess: pip with torch takes minutes, a hanging index for ever
MAX_CHECKS: Final = 100  # `setup.sh` says five and one per phase; the rest is not from it
MAX_DETAIL_CHARS: Final = 300  # as `setup.sh` cuts it; what it says goes into an event
MAX_VERDICT_CHARS: Final = 1000  # guess: a sentence in a timeline
MAX_PHASE_LIMIT_S: Final = 86_400.0  # guess: longer is no set-up any more

# One line of the log: what was done, and how it went. `setup.sh` writes them.
_LINE: Final = re.compile(
    r"^\[setup (?P<job>[^\s\]]+)\] (?P<name>[^:\n]{1,80}): (?P<word>ok|failed)(?:, (?P<said>.*))?$",
    re.MULTILINE,
)
# How pip words a version fight (pip 20.3 and newer): the cue to install in phases (ENV-05).
_FIGHT: Final = re.compile(r"ResolutionImpossible|conflicting dependencies|dependency conflict")
_TORCH: Final = re.compile(r"^torch(?![\w.-])", re.IGNORECASE)


class Setup(Struct, frozen=True, kw_only=True):
    """What to install before jobs run, and what must work afterwards."""

    system_packages: tuple[str, ...] = ()  # for apt-get
    pip_phases: tuple[tuple[str, ...], ...] = ()  # arguments of `pip install`, one call each
    torch: bool = False  # it is declared: it must see every GPU
    num_gpus: int = 1  # as many as were rented
    phase_limit_s: float = PHASE_LIMIT_S  # of each single step


class Check(Struct, frozen=True, kw_only=True):
    """One thing that was installed or looked at. `detail` is for people, and may be empty."""

    name: str
    ok: bool
    detail: str = ""


def steps(setup: Setup) -> list[str]:
    """Return the commands a set-up consists of, as one would type them."""
    found = []
    if setup.system_packages:
        found.append("apt-get install " + shlex.join(setup.system_packages))
    return found + ["pip install " + shlex.join(phase) for phase in setup.pip_phases]


def script(setup: Setup, functions: str) -> list[str]:
    """Return the argv that sets a machine up. `functions`: the text of `setup.sh`."""
    limit = str(round(setup.phase_limit_s))
    calls = ["setup_python"]
    if setup.system_packages:
        calls.append(shlex.join(["setup_apt", limit, *setup.system_packages]))
    count = len(setup.pip_phases)
    calls += [
        shlex.join(["setup_pip", limit, f"pip {number} of {count}", *phase])
        for number, phase in enumerate(setup.pip_phases, 1)
    ]
    calls.append(f"setup_gpus {setup.num_gpus}")
    if setup.torch:
        calls.append(f"setup_torch {setup.num_gpus}")
    lines = "\n".join(f"{call} || exit 1" for call in calls)
    return ["sh", "-c", f"{functions}\n{lines}\nsetup_done\n", "vastd-setup"]


def declares_torch(lines: Iterable[str]) -> bool:
    """Return whether a requirements file asks for torch."""
    return any(_TORCH.match(line.strip()) for line in lines)


def read_checks(log: str, job_id: str) -> list[Check]:
    """Return what the log of set-up `job_id` says was done, in that order."""
    lines = (found for found in _LINE.finditer(log) if found["job"] == job_id)
    return [
        Check(
            name=found["name"],
            ok=found["word"] == "ok",
            detail=(found["said"] or "").strip()[:MAX_DETAIL_CHARS],
        )
        for found in islice(lines, MAX_CHECKS)
    ]


def verdict(checks: Iterable[Check]) -> str | None:
    """Return one sentence about a set-up, or None when it said nothing."""
    listed = list(checks)
    bad = [check for check in listed if not check.ok]
    if bad:
        # A set-up ends at its first failure; more of them were not said by ours.
        return f"{bad[0].name} failed" + (f": {bad[0].detail}" if bad[0].detail else "")
    if not listed:
        return None
    return "; ".join(f"{c.name} {c.detail}".strip() for c in listed)[:MAX_VERDICT_CHARS]


def fights(log: str) -> bool:
    """Return whether pip gave up because requirements exclude each other."""
    return _FIGHT.search(log) is not None
