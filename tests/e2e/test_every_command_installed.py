"""Every command of `--help` driven through the installed programs; `--json` held to the wire's types."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from support.installed import Installed, installed
from support.tiny_wheel import WHEEL, a_wheel
from vastctl.arguments import load
from vastctl.commands import COMMANDS
from vastd_protocol.methods import (
    access,
    budget,
    config,
    cost,
    daemon,
    doctor,
    event,
    file,
    host,
    job,
    lease,
    log,
    offer,
    policy,
    reconcile,
    record,
    rental,
    setup,
    task,
)  # fmt: skip

pytestmark = [pytest.mark.e2e, pytest.mark.ssh]


class Own(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of documents that `vastctl` makes itself: no method answers them."""


class VersionDocument(Own, frozen=True, kw_only=True):
    vastctl: str
    protocol: int
    daemon: daemon.DaemonInfo | None


class PathDocument(Own, frozen=True, kw_only=True):
    path: str
    project_path: str | None


class LinesDocument(Own, frozen=True, kw_only=True):
    source: str
    lines: list[str]


class UnitDocument(Own, frozen=True, kw_only=True):
    path: str
    state: str


class InstallDocument(Own, frozen=True, kw_only=True):
    units: list[UnitDocument]
    manager: bool
    running: bool
    linger: bool | None
    todo: list[str]
    warnings: list[str]


class ScriptDocument(Own, frozen=True, kw_only=True):
    shell: str
    script: str


class RentalsDocument(Own, frozen=True, kw_only=True):
    rentals: list[rental.RentalView]


class SettingsDocument(Own, frozen=True, kw_only=True):
    settings: list[config.SettingView]


class ExportDocument(Own, frozen=True, kw_only=True):
    format: str
    version: int
    exported_at: str
    since_s: float | None
    vastd: str
    simulated: bool
    rentals: list[rental.RentalView]
    jobs: list[job.JobView]
    events: list[event.EventView]
    imported: list[record.ImportedView]


def exact(view: Any, text: str) -> Any:
    """Decode strictly; a field that the type does not have would be dropped: nothing may be."""
    decoded = msgspec.json.decode(text, type=view, strict=True)
    assert msgspec.to_builtins(decoded) == json.loads(text)
    return decoded


class Driver:
    """Runs commands and remembers which were driven."""

    def __init__(self, vast: Installed) -> None:
        self.vast = vast
        self.seen: set[str] = set()

    def note(self, words: tuple[str, ...]) -> None:
        actions = {} if words[0] == "help" else getattr(load(words[0]), "ACTIONS", {})
        self.seen.add(" ".join(words[:2]) if actions else words[0])

    def json(self, view: Any, *words: str, code: int = 0, lines: bool = False) -> Any:
        """Run with `--json`: stdout is one document with exactly the fields of `view`, on one line
        unless it may have `lines`."""
        self.note(words)
        done = self.vast.vastctl("--json", *words)
        assert done.returncode == code, (words, done.stderr)
        assert lines or done.stdout.count("\n") == 1, (words, done.stdout[:500])
        return exact(view, done.stdout)

    def text(self, *words: str, code: int = 0) -> str:
        """Run as people do: the result on stdout, never a traceback."""
        self.note(words)
        done = self.vast.vastctl(*words)
        assert done.returncode == code, (words, done.stderr)
        assert "Traceback" not in done.stderr, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def driver() -> Iterator[Driver]:
    with installed() as vast:
        (vast.project / "train.py").write_text("import os\nos.makedirs('results')\n")
        (vast.project / "requirements.txt").write_text(f"./{WHEEL}\n")
        a_wheel(vast.project / WHEEL)
        vast.start()
        yield Driver(vast)


NEEDS = ("--hours", "1", "--gpu-ram", "24", "--budget", "1")


def test_looking_before_anything_is_rented(driver: Driver) -> None:
    assert driver.json(VersionDocument, "version").daemon is not None
    assert driver.json(doctor.DoctorView, "doctor").blockers == 0
    assert driver.json(task.PlanView, "plan", *NEEDS).options
    assert driver.json(task.PlanView, "provision", *NEEDS).options
    assert driver.json(offer.OffersView, "offers", "gpu_ram>=24").offers
    assert driver.json(rental.RentalListView, "ls").rentals == []
    assert driver.json(job.JobListView, "jobs").jobs == []
    driver.json(daemon.DaemonStatusView, "daemon", "status")
    driver.json(budget.BudgetView, "budget")
    blocked = driver.json(
        host.HostView, "hosts", "block", "31337", "--reason", "too slow", "--for", "7d"
    )
    assert blocked.block is not None
    assert driver.json(host.HostListView, "hosts", "ls", "--blocked").hosts == [blocked]
    assert "31337" in driver.text("hosts", "ls")
    assert driver.json(host.HostView, "hosts", "unblock", "31337").block is None
    driver.json(cost.CostReportView, "cost", "--by", "day")
    driver.json(cost.CostForecastView, "cost", "--forecast")
    driver.json(config.ConfigView, "config", "get", "budget")
    driver.json(PathDocument, "config", "path")
    driver.json(config.ChangedView, "config", "set", "budget.warn_percent=70")
    both = driver.json(
        SettingsDocument, "config", "set", "budget.warn_percent=75", "defaults.disk_gb=40"
    )
    assert [s.value for s in both.settings] == [75.0, 40.0]
    driver.json(ScriptDocument, "completion", "bash")
    for words in (
        ("version",), ("doctor",), ("plan", *NEEDS), ("provision", *NEEDS), ("offers",), ("ls",),
        ("jobs",), ("daemon", "status"), ("budget",), ("cost",), ("config", "get"),
        ("config", "path"), ("completion", "bash"), ("help",),
    ):  # fmt: skip
        assert driver.text(*words).strip(), words


def test_a_machine_of_ones_own(driver: Driver) -> None:
    assert driver.json(rental.RentalView, "up", "box", "-y", *NEEDS).phase == "ready"
    for words, view in (
        (("ls",), rental.RentalListView), (("show", "box"), rental.RentalView),
        (("explain", "box"), rental.ExplainView), (("lease", "box"), lease.LeaseView),
        (("policy", "box"), policy.PolicyView),
    ):  # fmt: skip
        driver.json(view, *words)
        assert "box" in driver.text(*words)
    driver.json(policy.PolicyView, "policy", "box", "idle=2h")
    driver.json(policy.EndingsView, "explain", "--endings")
    assert "outbid" in driver.text("explain", "--endings")
    driver.json(setup.SetupView, "setup", "box")
    assert driver.json(access.ExecView, "exec", "box", "--", "echo", "hi").stdout == "hi\n"
    assert driver.text("exec", "box", "--", "echo", "hi") == "hi\n"
    driver.json(access.EndpointView, "ssh", "box")
    assert driver.text("ssh", "box", "--print").startswith("ssh ")
    (driver.vast.project / "note").write_text("sent\n")
    driver.json(file.CopyView, "push", "box", "note")
    driver.json(file.CopyView, "pull", "box", "note", "back/")
    found = list((driver.vast.project / "back").rglob("note"))
    assert [p.read_text() for p in found] == ["sent\n"]
    driver.json(rental.RentalView, "stop", "box")
    driver.json(rental.RentalView, "start", "box", "-y")
    driver.json(rental.RentalView, "down", "box", "-y")
    assert driver.vast.live() == 0


def test_a_job_and_its_records(driver: Driver) -> None:
    words = ("-y", "--name", "lab", *NEEDS, "--output", "results", "--")
    run = ("run", *words, "sh", "-c", "mkdir results; echo 1 > results/a; echo out")
    done = driver.json(job.JobWaitView, *run)
    assert (done.job.state, done.job.collected) == ("succeeded", True)
    driver.json(job.JobView, "job", "show", "lab")
    driver.json(job.JobWaitView, "job", "wait", "lab")
    driver.json(log.LogView, "logs", "lab")
    assert driver.text("logs", "lab", "-n", "1", "--search", "ou.") == "out\n"
    driver.json(job.JobListView, "jobs", "--all")
    driver.json(event.EventListView, "events", "--job", "lab")
    for more in (("job", "show", "lab"), ("jobs", "--all"), ("events", "-n", "5"), ("cost",)):
        assert driver.text(*more).strip()
    exported = driver.json(ExportDocument, "export", lines=True)
    assert {j.name for j in exported.jobs} >= {"lab"}
    saved = driver.vast.root / "export.json"
    driver.text("export", "--output", str(saved))
    driver.json(record.ImportView, "import", str(saved))
    driver.json(record.ImportedPage, "import", "--list")
    driver.json(rental.RentalListView, "rpc", "rental.list", '{"all": true}')


def test_a_job_that_is_ended_and_tried_again(driver: Driver) -> None:
    run = ("run", "-y", "--keep", "--detach", "--name", "two", *NEEDS, "--output", "results", "--")
    newest = driver.vast.json("events", "-n", "1")["cursor"]
    begun = driver.json(job.JobSubmitView, *run, "sh", "-c", "mkdir -p results; sleep 600")
    driver.vast.wait_for("job_began", after=newest)
    driver.json(rental.CollectedView, "collect", begun.rental.rental_id)
    driver.json(job.JobView, "job", "cancel", "two", "-y")
    assert driver.json(job.JobWaitView, "job", "wait", "two", code=143).job.state == "cancelled"
    again = driver.json(job.JobSubmitView, "job", "retry", "two", "-y")
    driver.text("job", "cancel", again.job.job_id, "-y")
    offers = driver.json(offer.OffersView, "offers", "gpu_ram>=24").offers
    driver.json(
        rental.RentalView, "rent", str(offers[0].offer_id), "-y", "--budget", "1", "--name", "third"
    )
    driver.json(rental.RentalView, "destroy", "third", "-y")
    driver.json(RentalsDocument, "destroy-all", "-y", "--force", "--reason", "tidy up")
    driver.json(RentalsDocument, "destroy", "--all", "-y")
    assert driver.vast.live() == 0


def test_streams_are_one_document_per_line(driver: Driver) -> None:
    vast = driver.vast
    follower = vast.begin("--json", "events", "-f", "--after", "0")
    assert follower.stdout is not None
    newest = vast.json("events", "-n", "1")["cursor"]
    for line in follower.stdout:
        if exact(event.EventView, line).cursor >= newest:
            break
    follower.kill()
    follower.communicate()
    followed = vast.vastctl("--json", "logs", "lab", "-f")
    pieces = [exact(log.LogAppended, line) for line in followed.stdout.splitlines()]
    assert pieces[-1].eof is True


def test_a_machine_that_is_let_go_is_taken_back(driver: Driver) -> None:
    spare = driver.json(rental.RentalView, "up", "spare", "-y", *NEEDS)
    gone = driver.json(rental.RentalView, "release", "spare", "-y")
    assert (gone.phase, gone.end_reason) == ("gone", "released")
    (stranger,) = driver.json(reconcile.ReconcileView, "reconcile").foreign
    assert (stranger.instance_id, stranger.whose) == (spare.instance_id, "released")
    assert str(spare.instance_id) in driver.text("reconcile")
    words = ("adopt", str(spare.instance_id), "--name", "back", "-y")
    assert driver.json(rental.RentalView, *words).name == "back"
    assert "back" in driver.text("ls")
    assert driver.vast.vastctl("destroy", "back", "-y", "--no-collect").returncode == 0


def test_the_daemon_itself(driver: Driver) -> None:
    driver.json(reconcile.ReconcileView, "daemon", "acknowledge")
    driver.json(InstallDocument, "daemon", "install", "-y")
    driver.json(InstallDocument, "daemon", "install", "-y", "--remove")
    driver.json(InstallDocument, "daemon", "uninstall", "-y")
    assert driver.vast.stop() == 0
    driver.json(daemon.DaemonStatusView, "daemon", "start", "--simulate")
    driver.json(LinesDocument, "daemon", "logs")
    assert driver.text("daemon", "logs").strip()
    driver.json(daemon.StopView, "daemon", "stop")


def test_the_demo(driver: Driver) -> None:
    # A vastd, a Vast and a project of its own.
    out = driver.vast.vastctl("demo", cwd=driver.vast.root, limit_s=120)
    driver.note(("demo",))
    assert out.returncode == 0, out.stderr
    assert "0 live contracts" in out.stdout + out.stderr


def test_every_command_was_driven(driver: Driver) -> None:
    known: set[str] = set()
    for name in COMMANDS:
        actions = {} if name == "help" else getattr(load(name), "ACTIONS", {})
        known |= {f"{name} {action}" for action in actions} or {name}

    assert known - driver.seen == set()


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("show", "nosuch"), 5), (("job", "show", "nosuch"), 5), (("stop", "nosuch"), 5),
        (("policy", "nosuch"), 5), (("destroy", "nosuch", "-y"), 5),
        (("budget", "per_day_usd=nan"), 2), (("rpc", "no.such"), 2),
        (("run", "-y", "--gpu-ram", "900", "--", "true"), 9),
        (("run", "-y", "--budget", "999", "--", "true"), 6),
    ],
)  # fmt: skip
def test_a_failure_leaves_stdout_empty_and_one_document_on_stderr(
    refused: Installed, words: tuple[str, ...], code: int
) -> None:
    done = refused.vastctl("--json", "--quiet", *words)

    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    error = json.loads(done.stderr)["error"]
    assert error["message"]
    assert set(error["data"]) >= {"kind", "hint"}


@pytest.fixture(scope="module")
def refused() -> Iterator[Installed]:
    with installed() as vast:
        vast.start()
        yield vast


def test_without_a_daemon_every_question_ends_with_3(tmp_path: Path) -> None:
    with installed() as vast:
        for words in (("ls",), ("budget",), ("run", "-y", "--", "true"), ("stop", "x")):
            done = vast.vastctl("--json", *words)

            assert (done.returncode, done.stdout) == (3, ""), done.stderr
            assert "vastd" in json.loads(done.stderr)["error"]["message"]
