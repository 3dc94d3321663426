"""Working on a machine: ssh and exec hand over, copies are guarded, renting waits."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.json import encode

from vastd_protocol.errors import ErrorCode
from vastd_protocol.methods import access, event, file, rental, task

ARGV = ["ssh", "-i", "/state/ssh/key", "-p", "40117", "root@198.51.100.7"]


@pytest.fixture
def endpoint(daemon: Any, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """A machine one can reach; the returned list gets the argv of what would replace us."""
    view = access.EndpointView(
        rental_id="r-1", instance_id=1, identity_file="/k", known_hosts_file="/h",
        host_key_alias="a", argv=ARGV,
        ssh=rental.SshView(host="198.51.100.7", port=40117, user="root", route="direct"),
    )  # fmt: skip
    daemon.on("ssh.endpoint", view)
    became: list[list[str]] = []

    def execvp(program: str, argv: list[str]) -> None:
        became.append([program, *argv[1:]])
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(os, "execvp", execvp)
    return became


def test_exec_becomes_ssh_with_the_command_quoted(
    vastctl: Callable[..., Any], endpoint: list[list[str]]
) -> None:
    vastctl("exec", "r-1", "--", "ls", "a b", "--json")
    vastctl("exec", "--", "ls *.log | wc")

    assert endpoint[0] == [*ARGV, "--", "ls 'a b' --json"]
    assert endpoint[1] == [*ARGV, "--", "ls *.log | wc"]


def test_exec_ends_with_125_when_it_cannot_even_try(
    vastctl: Callable[..., Any], daemon: Any, endpoint: list[list[str]], make: Any
) -> None:
    assert vastctl("exec", "r-1", "--", "true").code == 125  # the played execvp fails
    daemon.in_turn("ssh.endpoint", make.refuse(ErrorCode.NOT_FOUND, "no rental"))
    assert vastctl("exec", "r-9", "--", "true").code == 125
    assert vastctl("exec", "r-9").code == 2
    assert vastctl("ssh", "r-9").code == 5


def test_exec_with_json_runs_through_the_daemon(vastctl: Callable[..., Any], daemon: Any) -> None:
    view = access.ExecView(rental_id="r-1", exit_code=4, stdout="out", stderr="")
    daemon.on("exec.run", view)

    ran = vastctl("exec", "r-1", "--json", "--", "x", "y")

    assert (ran.code, ran.out_bytes) == (4, encode(view) + b"\n")
    assert daemon.asked("exec.run")[0]["command"] == "x y"


def test_ssh_can_be_printed_for_use_elsewhere(
    vastctl: Callable[..., Any], endpoint: list[list[str]], daemon: Any
) -> None:
    ran = vastctl("ssh", "--print")

    assert (ran.code, ran.out) == (0, " ".join(ARGV) + "\n")
    assert endpoint == []
    assert daemon.asked("ssh.endpoint") == [{"project": "/home/me/lab"}]
    assert vastctl("ssh", "r-1").code == 125  # no OpenSSH: ours is the failure
    assert endpoint == [ARGV]


# -- copies --------------------------------------------------------------------------------


@pytest.fixture
def copies(daemon: Any, make: Any) -> Any:
    daemon.on("rental.get", make.rental())
    daemon.on("event.subscribe", event.EventSubscriptionView(subscription_id="e", cursor=1))

    def copied(params: dict[str, Any]) -> file.CopyView:
        daemon.notify("progress", event.Progress(step="push", done=5, total=10))
        return file.CopyView(
            rental_id="r-1", destination=params.get("destination", "/workspace/project"), bytes=10
        )

    daemon.on("file.push", copied)
    daemon.on("file.pull", copied)
    return daemon


@pytest.mark.parametrize(
    "destination",
    [
        "/",
        "/root",
        "//",
        "/root/",
        "/workspace/../root",
        "../../root",
        "/root/x/..",
        "~",
        "//root",
        "/.",
    ],
)
def test_push_refuses_places_that_would_break_the_machine(
    vastctl: Callable[..., Any], copies: Any, tmp_path: Path, destination: str
) -> None:
    ran = vastctl("push", "r-1", str(tmp_path), destination)

    assert ran.code == 6
    assert copies.requests == []


def test_push_sends_absolute_sources_and_shows_progress(
    vastctl: Callable[..., Any], copies: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_text("x")
    (tmp_path / "b").write_text("x")
    monkeypatch.chdir(tmp_path)

    ran = vastctl("push", "lab", "a", "b", "/workspace/data")

    assert ran.code == 0
    assert "push: 5 B of 10 B (50%)\n✓ 10 B to lab:/workspace/data\n" in ran.err
    (sent,) = copies.asked("file.push")
    assert sent["sources"] == [str(tmp_path / "a"), str(tmp_path / "b")]
    assert sent["request_id"]
    assert vastctl("push", "lab", "a").code == 0
    assert "destination" not in copies.asked("file.push")[1]
    assert vastctl("push", "lab", "missing").code == 2


def test_pull_goes_to_a_local_directory(
    vastctl: Callable[..., Any], copies: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("x")

    assert vastctl("pull", "lab", "results").code == 0
    assert vastctl("pull", "lab", "results", "log", "new").code == 0
    assert vastctl("pull", "lab", "results", "file").code == 2

    first, second = copies.asked("file.pull")
    assert (first["sources"], first["destination"]) == (["results"], str(tmp_path))
    assert (second["sources"], second["destination"]) == (["results", "log"], str(tmp_path / "new"))


def test_collect_tells_where_and_what_is_missing(vastctl: Callable[..., Any], copies: Any) -> None:
    copies.on(
        "rental.collect",
        rental.CollectedView(rental_id="r-1", destination="/p", files=2, bytes=9, missing=["ckpt"]),
    )

    ran = vastctl("collect", "--output", "results", "ckpt")

    assert (ran.code, ran.out) == (0, "/p\n")
    assert "2 files, 9 B in /p" in ran.err
    assert "declared but not found: ckpt" in ran.err
    assert copies.asked("rental.collect")[0]["outputs"] == ["results", "ckpt"]


# -- renting -------------------------------------------------------------------------------


@pytest.fixture
def renting(daemon: Any, make: Any) -> Any:
    daemon.on("rental.create", make.rental(phase="planned"))
    daemon.on("rental.get", make.rental(phase="ready", jobs=[]))
    daemon.on("event.subscribe", event.EventSubscriptionView(subscription_id="e", cursor=0))
    return daemon


def test_rent_waits_until_the_door_is_open(vastctl: Callable[..., Any], renting: Any) -> None:
    assert vastctl("rent", "99").code == 2

    ran = vastctl("rent", "99", "--name", "box", "--budget", "3", "--idle", "30m")

    assert (ran.code, ran.out) == (0, "lab\n")
    assert "ready at $0.312/h: `vastctl ssh lab`" in ran.err
    assert (
        "it ends by itself in 11h30m (default; --max-runtime) or after 30m without work (--idle); "
        "until then it bills $0.312/h\n" in ran.err
    )
    (sent,) = renting.asked("rental.create")
    assert sent["needs"] == {"offer_id": 99}
    assert sent["policy"] == {"budget_usd": 3.0, "idle_s": 1800.0}
    assert sent["name"] == "box"


def test_a_machine_that_fails_to_boot_is_a_failed_provisioning(
    vastctl: Callable[..., Any], renting: Any, make: Any
) -> None:
    renting.on(
        "rental.get",
        make.rental(phase="destroying", end_reason="boot", end_detail="no ssh for 300 s"),
    )

    ran = vastctl("rent", "99", "-y")

    assert ran.code == 10
    assert "no ssh for 300 s" in ran.err


def test_a_machine_not_ready_in_time_is_a_timeout_that_names_the_way_to_end_it(
    vastctl: Callable[..., Any], renting: Any, make: Any
) -> None:
    renting.on("rental.get", make.rental(phase="booting"))

    ran = vastctl("rent", "99", "-y", "--timeout", "0.01")

    assert ran.code == 8
    assert "vastctl destroy lab" in ran.err
    assert vastctl("rent", "99", "-y", "--no-wait").code == 0


def test_offers_show_reasons_and_removals_when_asked(
    vastctl: Callable[..., Any], daemon: Any
) -> None:
    option = task.OptionView(
        roles=[], offer_id=5, machine_id=6, gpu_name="RTX_3090", num_gpus=2, gpu_ram_mb=24576,
        dph_usd=0.25, flags=["no direct port"], reasons=["cheap disk"],
    )  # fmt: skip
    found = {
        "offers": [option],
        "considered": 9,
        "removed": {"disk": 3, "price": 5},
        "near_misses": [],
    }
    daemon.on("offer.search", found)

    plain = vastctl("offers", "gpu_ram>=24", "reliability>0.9")
    full = vastctl("offers", "--explain", "--limit", "5")

    assert plain.out.splitlines()[1].split()[:5] == ["1", "-", "5", "2x", "RTX_3090"]
    assert (
        "  1: no direct port\n  1: cheap disk\nof 9 offers, removed by: price 5, disk 3\n"
        in full.out
    )
    assert daemon.asked("offer.search")[0]["query"] == "gpu_ram>=24 reliability>0.9"
    assert daemon.asked("offer.search")[1]["limit"] == 5
    assert daemon.asked("offer.search")[0]["project"] == "/home/me/lab"
    assert "defaults" not in plain.err
    daemon.on("offer.search", {**found, "defaults": {"gpu_ram_gb": "project (vastd.toml:2)"}})
    told = vastctl("offers").err
    assert "defaults in this project: gpu_ram_gb from project (vastd.toml:2);" in told
    daemon.on("offer.search", {**found, "offers": [], "near_misses": [option]})
    ran = vastctl("offers")
    assert ran.code == 9
    assert "near misses:" in ran.err


def test_plan_without_offers_asks_for_none(
    vastctl: Callable[..., Any], daemon: Any, tmp_path: Path
) -> None:
    fact = task.Fact(value=1, source="default")
    vram = task.Range(low=14, mid=18.5, high=22, source="7B, LoRA")
    needs = task.RequirementsView(num_gpus=fact, disk_gb=fact, vram_gb=vram)
    known = task.TaskView(
        model=task.Fact(value="llama-7b", source="train.py:12", confidence="derived")
    )
    daemon.on("task.plan", task.PlanView(task=known, requirements=needs))

    ran = vastctl("plan", "--no-offers", "--explain", "--task", "tune it", str(tmp_path))

    assert ran.code == 0
    assert "memory per GPU  14 to 22 GB, probably 18.5  (7B, LoRA)" in ran.out.replace(
        "GB, prob", "GB, prob"
    )
    assert "model  llama-7b  (derived: train.py:12)" in ran.out
    (sent,) = daemon.asked("task.plan")
    assert sent["offers"] is False
    assert sent["paths"] == [str(tmp_path)]
    assert vastctl("plan").code == 9


def test_a_plan_for_a_path_that_is_not_there_is_refused(
    vastctl: Callable[..., Any], daemon: Any, tmp_path: Any
) -> None:
    ran = vastctl("plan", str(tmp_path), str(tmp_path / "nosuch.py"))

    assert ran.code == 2
    assert "nosuch.py" in ran.err
    assert daemon.asked("task.plan") == []
