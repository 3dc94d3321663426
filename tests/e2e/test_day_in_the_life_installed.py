"""A day with the installed programs: three jobs, an upgrade of the store in the middle, nothing lost."""

import json
import random
import re
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from support.installed import Installed, installed
from support.old_store import FIRST_JOB, LIVE_JOB, LIVE_RENTAL, make_v1, put_back_to_v1

pytestmark = [pytest.mark.e2e, pytest.mark.ssh]

FIRST_RENTAL: Final = "r000002"  # of the kept store: ended, its results are home
FIRST_EVENTS: Final = 22  # of the kept store, until that machine was gone
FIRST_COST_USD: Final = 0.007084  # 79.2 s at $0.006944/h and 377.6 s at $0.066082/h, rounded up
DAY_S: Final = 86_400.0
BLOB_BYTES: Final = 300_000
LIMITS: Final = ("-y", "--hours", "1", "--gpu-ram", "24", "--budget", "2")
# argv: seed, steps of a tenth of a second. Writes results-SEED/ and a heartbeat.
WORK: Final = """\
import json, os, random, sys, time
seed, steps = int(sys.argv[1]), int(sys.argv[2])
out = f"results-{seed}"
os.makedirs(f"{out}/deep", exist_ok=True)
for step in range(steps):
    print(f"step {step:04d}", flush=True)
    with open("heartbeat.new", "w") as beat:
        json.dump({"step": step, "loss": 1 / (1 + step)}, beat)
    os.replace("heartbeat.new", "heartbeat.json")
    time.sleep(0.1)
with open(f"{out}/deep/model.bin", "wb") as model:
    model.write(random.Random(seed).randbytes(300_000))
with open(f"{out}/metrics.json", "w") as metrics:
    json.dump({"seed": seed, "steps": steps}, metrics)
"""


@pytest.fixture
def vast() -> Iterator[Installed]:
    with installed() as made:
        (made.project / "work.py").write_text(WORK)
        yield made


def test_a_day_of_three_jobs_and_an_upgrade_loses_nothing(vast: Installed) -> None:
    yesterday(vast)
    install_units(vast)
    vast.start_by_client()
    old = morning(vast)

    one = vast.vastctl("run", *LIMITS, "--name", "one", *work(1, 5))
    assert (one.returncode, one.stdout) == (0, log(5)), one.stderr
    assert vast.vastctl("up", "box", *LIMITS).stdout == "box\n"
    two = vast.vastctl("run", "-y", "--on", "box", "--name", "two", *work(2, 5))
    assert (two.returncode, two.stdout) == (0, log(5)), two.stderr
    copied_beside(vast)
    detached = ("run", *LIMITS, "--detach", "--heartbeat", "heartbeat.json:5s", "--name", "three")
    three = vast.json(*detached, *work(3, 150))["job"]["job_id"]
    began = vast.wait_for("job_began", job_id=three)
    assert first_beat(vast) < 150
    noon = looked_at(vast, old, three)

    stopped = vast.stop_by_client()
    assert stopped["rentals_live"] == vast.live() == 2
    put_back_to_v1(vast.state)
    vast.start_by_client()
    upgraded(vast, noon)
    waited = vast.vastctl("job", "wait", "three")
    assert waited.returncode == 0, waited.stderr
    assert vast.vastctl("logs", "three").stdout == log(150)
    assert vast.vastctl("down", "box", "--yes").returncode == 0

    evening(vast, noon, began)
    assert vast.stop_by_client() == {"rentals_live": 0, "dph_usd": 0.0}
    removed = vast.json("daemon", "uninstall")
    assert [unit["state"] for unit in removed["units"]] == ["removed", "removed"]


# -- the parts of the day


def yesterday(vast: Installed) -> None:
    """Make the state directory that vastd of schema 1 left: one job ended, nothing live."""
    vast.state.mkdir(mode=0o700)
    path = make_v1(vast.state, root=str(vast.root))
    back_s = 1_800_000_000.0 - (time.time() - DAY_S)
    with sqlite3.connect(path) as store:
        for table in ("events", "jobs", "rentals"):
            forget_live(store, table)
            for key, body in store.execute(f"SELECT rowid, body FROM {table}").fetchall():
                moved = re.sub(
                    rb"\b18000\d{5}(\.\d+)?\b", lambda m: b"%.6f" % (float(m[0]) - back_s), body
                )
                store.execute(f"UPDATE {table} SET body = ? WHERE rowid = ?", (moved, key))
        store.execute("UPDATE events SET at = at - ?", (back_s,))
        store.execute("UPDATE sqlite_sequence SET seq = ?", (FIRST_EVENTS,))
    store.close()


def forget_live(store: sqlite3.Connection, table: str) -> None:
    """Take out the machine of the kept store that is live: the simulator here has none."""
    columns = {row[1] for row in store.execute(f"PRAGMA table_info({table})")}
    for column, ident in (("rental_id", LIVE_RENTAL), ("job_id", LIVE_JOB)):
        if column in columns:
            store.execute(f"DELETE FROM {table} WHERE {column} = ?", (ident,))


def install_units(vast: Installed) -> None:
    done = vast.json("daemon", "install")
    assert [unit["state"] for unit in done["units"]] == ["new", "new"]
    service, socket = (Path(unit["path"]) for unit in done["units"])
    assert service.is_relative_to(vast.home)
    assert f"ExecStart={vast.program('vastd')}" in service.read_text()
    assert f"ListenStream={vast.socket}" in socket.read_text()


def morning(vast: Installed) -> dict[str, Any]:
    """Check that yesterday is there; return its machine."""
    check_migrated(vast, FIRST_EVENTS)
    assert len(trail(vast)) == FIRST_EVENTS
    (job,) = vast.json("jobs", "--all")["jobs"]
    assert (job["job_id"], job["state"], job["collected"]) == (FIRST_JOB, "succeeded", True)
    (machine,) = vast.json("ls", "--all")["rentals"]
    assert (machine["rental_id"], machine["phase"]) == (FIRST_RENTAL, "gone")
    assert vast.json("cost")["cost_usd"] == machine["cost_usd"] == job["cost_usd"]
    assert machine["cost_usd"] == FIRST_COST_USD
    return machine


def check_migrated(vast: Installed, events: int) -> None:
    """The older store is kept with all its events, and renting is allowed."""
    with sqlite3.connect(vast.state / "vastd.db.before-v3") as before:
        assert before.execute("PRAGMA user_version").fetchone() == (1,)
        assert before.execute("SELECT count(*) FROM events").fetchone()[0] >= events
    before.close()
    assert vast.json("daemon", "status")["renting_locked"] is None


def looked_at(vast: Installed, old: dict[str, Any], three: str) -> dict[str, Any]:
    """Look at everything as one does at noon; return what must not change by the upgrade."""
    listed = vast.json("ls")
    assert [(r["name"], r["phase"]) for r in listed["rentals"]] == [
        ("box", "ready"), ("three", "busy"),
    ]  # fmt: skip
    assert listed["totals"]["dph_usd"] == pytest.approx(
        sum(r["dph_usd"] for r in listed["rentals"]), abs=1e-6
    )
    assert vast.json("show", "three")["jobs"] == [three]
    story = [step["kind"] for step in vast.json("explain", "three")["timeline"]]
    assert story[:2] == ["job_submitted", "rental_planned"]
    caps = {cap["key"]: cap for cap in vast.json("budget")["caps"]}
    assert {who["name"] for who in caps["per_day_usd"]["reserved_by"]} == {"box", "three"}
    report = sums_agree(vast)
    assert report["accrued_usd"] > 0
    ended = [r for r in vast.json("ls", "--all")["rentals"] if r["phase"] == "gone"]
    assert ended[0] == old
    jobs = [j for j in vast.json("jobs", "--all")["jobs"] if j["ended_at"] is not None]
    assert [j["name"] for j in jobs] == ["first", "one", "two"]
    return {"ended": ended, "jobs": jobs, "trail": trail(vast)}


def copied_beside(vast: Installed) -> None:
    """Bring results of the machine that is kept to another place as well."""
    beside = vast.root / "beside"
    beside.mkdir()
    done = vast.json("collect", "box", "--output", "results-2", "--to", str(beside))
    assert (done["files"], done["destination"]) == (3, str(beside))  # and the log
    assert came_home(beside / "results-2") == made_by(2, 5)


def first_beat(vast: Installed) -> int:
    """Return the step that the running job told first."""
    for _ in range(300):  # the machine is looked at every second; each question takes a moment
        beat = vast.json("job", "show", "three")["heartbeat"]
        if beat is not None:
            return int(beat["step"])
    raise AssertionError("no heartbeat was seen")


def upgraded(vast: Installed, noon: dict[str, Any]) -> None:
    """Check that the new version knows all that the older store had."""
    check_migrated(vast, len(noon["trail"]))
    assert trail(vast)[: len(noon["trail"])] == noon["trail"]
    known = {r["rental_id"]: r for r in vast.json("ls", "--all")["rentals"]}
    assert [known[r["rental_id"]] for r in noon["ended"]] == noon["ended"]


def evening(vast: Installed, noon: dict[str, Any], began: dict[str, Any]) -> None:
    """Everything is home, nothing bills, each machine was made once, and the record is whole."""
    for seed, steps in ((1, 5), (2, 5), (3, 150)):
        assert came_home(vast.project / f"results-{seed}") == made_by(seed, steps)
    assert vast.live() == 0
    creates = vast.creates()
    assert len(creates) == len(set(creates)) == 3
    rentals = vast.json("ls", "--all")["rentals"]
    assert [(r["name"], r["phase"], r["end_reason"]) for r in rentals] == [
        ("first", "gone", "job_done"), ("one", "gone", "job_done"), ("box", "gone", "user"),
        ("three", "gone", "job_done"),
    ]  # fmt: skip
    jobs = vast.json("jobs", "--all")["jobs"]
    assert [(j["name"], j["state"], j["exit_code"], j["collected"]) for j in jobs] == [
        (name, "succeeded", 0, True) for name in ("first", "one", "two", "three")
    ]
    for before, after in zip(noon["jobs"], jobs, strict=False):
        assert {key for key in before if before[key] != after[key]} == set(), before["name"]
    report = sums_agree(vast)
    assert (report["accrued_usd"], report["reserved_usd"]) == (0, 0)
    whole_trail(vast, noon, began, rentals, jobs)


def whole_trail(
    vast: Installed,
    noon: dict[str, Any],
    began: dict[str, Any],
    rentals: list[dict[str, Any]],
    jobs: list[dict[str, Any]],
) -> None:
    """No event is missing or was told twice, before, through and after the upgrade."""
    events = trail(vast)
    assert events[: len(noon["trail"])] == noon["trail"]
    assert began in events
    for rental in rentals:
        mine = [e["kind"] for e in events if e["rental_id"] == rental["rental_id"]]
        once = ("rental_planned", "create_sent", "create_confirmed", "became_ready", "end_decided",
                "found_absent")  # fmt: skip
        assert {kind: mine.count(kind) for kind in once} == dict.fromkeys(once, 1), rental["name"]
    for job in jobs:
        mine = [e["kind"] for e in events if e["job_id"] == job["job_id"]]
        once = ("job_submitted", "job_placed", "synced", "job_began", "job_finished", "collected")
        assert {kind: mine.count(kind) for kind in once} == dict.fromkeys(once, 1), job["name"]


# -- what is compared


def work(seed: int, steps: int) -> tuple[str, ...]:
    return ("--output", f"results-{seed}", "--", "python3", "work.py", str(seed), str(steps))


def log(steps: int) -> str:
    return "".join(f"step {step:04d}\n" for step in range(steps))


def made_by(seed: int, steps: int) -> dict[str, bytes]:
    """Return the files of a job, as its machine wrote them."""
    return {
        "deep/model.bin": random.Random(seed).randbytes(BLOB_BYTES),
        "metrics.json": json.dumps({"seed": seed, "steps": steps}).encode(),
    }


def came_home(place: Path) -> dict[str, bytes]:
    found = (path for path in place.rglob("*") if path.is_file())
    return {str(path.relative_to(place)): path.read_bytes() for path in found}


def trail(vast: Installed) -> list[dict[str, Any]]:
    """Return all events; their cursors have no gap."""
    events: list[dict[str, Any]] = vast.json("events", "--after", "0", "-n", "1000")["events"]
    assert [event["cursor"] for event in events] == list(range(1, len(events) + 1))
    return events


def sums_agree(vast: Installed) -> dict[str, Any]:
    """Check to the millionth that every way to add up gives the same; return the report by machine.

    What a live machine costs grows between two questions: those are compared from one export.
    """
    report: dict[str, Any] = vast.json("cost", "--by", "rental")
    assert micro(report["cost_usd"]) == sum(micro(row["cost_usd"]) for row in report["rows"])
    assert micro(report["cost_usd"]) == micro(report["ended_usd"]) + micro(report["accrued_usd"])
    rentals = vast.json("ls", "--all")["rentals"]
    ended = {r["rental_id"]: r["cost_usd"] for r in rentals if r["phase"] == "gone"}
    assert micro(report["ended_usd"]) == sum(micro(cost) for cost in ended.values())
    rows = {row["key"]: row["cost_usd"] for row in report["rows"]}
    assert {ident: rows[ident] for ident in ended} == ended
    if len(ended) == len(rentals):
        for by in ("day", "project", "gpu"):
            other = vast.json("cost", "--by", by)
            assert micro(other["cost_usd"]) == micro(report["cost_usd"])
            assert sum(micro(row["cost_usd"]) for row in other["rows"]) == micro(other["cost_usd"])
    return report


def micro(usd: float) -> int:
    return round(usd * 1_000_000)
