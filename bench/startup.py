"""`vastctl ls` as a whole process from a wheel, beside the least it needs and the official client."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from bench import fleet
from bench.report import Row
from bench.timing import in_turn, whole_process
from support.installed import Installed, installed

RENTALS = 25  # DESIGN 5
FLOOR_LIMIT = 1.6  # DESIGN 5
FASTER_LIMIT = 8.0  # DESIGN 5
ROOT = Path(__file__).resolve().parents[1]
OFFICIAL = "VASTAI"  # the variable that names another `vastai` than that of `make official-client`
OFFICIAL_PLACES = (ROOT / ".venv-vastai" / "bin" / "vastai",)


def measure(*, quick: bool) -> list[Row]:
    """Return `ls` beside its floor and beside `vastai show instances`, on the same simulator."""
    count, runs = (2, 1) if quick else (RENTALS, 15)
    with installed() as vast, _program(vast, from_wheel=not quick) as vastctl:
        vast.start()
        fleet.rent_on_simulator(vast, count)
        python = Path(vastctl).with_name("python")
        floor_argv = [str(python), "-c", "import msgspec, socket"]
        ours, floor = in_turn(
            lambda: whole_process([vastctl, "ls"], vast.env),
            lambda: whole_process(floor_argv, vast.env),
            runs=runs,
        )
        what = f"vastctl ls, {count} rentals, whole process"
        return [
            Row(
                what=what,
                ours=ours,
                peer=floor,
                peer_what="import msgspec, socket",
                limit=FLOOR_LIMIT,
            ),
            _beside_official(vast, vastctl, what, 1 if quick else 5),
        ]


def _beside_official(vast: Installed, vastctl: str, what: str, runs: int) -> Row:
    official = _official()
    peer_what = "vastai show instances --raw"
    if official is None:
        return Row(
            what=what,
            note="no vastai: `make official-client` installs it",
            peer_what=peer_what,
            limit=FASTER_LIMIT,
            at_least=True,
        )
    info = json.loads((vast.state / "simulator" / "service.json").read_bytes())
    access = ["--url", info["url"], "--api-key", info["api_key"]]
    argv = [str(official), *access, "show", "instances", "--raw"]
    ours, peer = in_turn(
        lambda: whole_process([vastctl, "ls"], vast.env),
        lambda: whole_process(argv, vast.env),
        runs=runs,
    )
    return Row(
        what=what,
        ours=ours,
        peer=peer,
        peer_what=peer_what,
        faster=True,
        limit=FASTER_LIMIT,
        at_least=True,
    )


def _official() -> Path | None:
    named = os.environ.get(OFFICIAL)
    places = (Path(named),) if named else OFFICIAL_PLACES
    return next((place for place in places if place.exists()), None)


@contextmanager
def _program(vast: Installed, *, from_wheel: bool) -> Iterator[str]:
    """Give `vastctl` from a wheel in its own environment: an editable install starts slower."""
    if not from_wheel:
        yield vast.program("vastctl")
        return
    with tempfile.TemporaryDirectory(prefix="vastd-bench-") as made:
        here = Path(made)
        python = here / "venv" / "bin" / "python"
        subprocess.run([sys.executable, "-m", "venv", str(here / "venv")], check=True)
        source = here / "source"
        _copy_source(source)
        # Only what the command line imports: the daemon's packages would add a minute, and no time
        # to the start of `vastctl`.
        pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--no-input", "-q"]
        subprocess.run([*pip, "wheel", "--no-deps", "-w", made, str(source)], check=True)
        (wheel,) = here.glob("vastd-*.whl")
        needed = f"msgspec=={msgspec.__version__}"
        subprocess.run([*pip, "install", "--no-deps", str(wheel), needed], check=True)
        yield str(python.with_name("vastctl"))


def _copy_source(target: Path) -> None:
    """Copy what a wheel is made of: building in place would leave `build/` behind."""
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in ("vastd", "vastctl", "protocol", "systemd"):
        shutil.copytree(ROOT / name, target / name, ignore=ignored, symlinks=True)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, target / name)
