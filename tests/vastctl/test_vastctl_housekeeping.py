"""`doctor`, `config`, `daemon`, `events`, `rpc`, `version`."""

import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from msgspec.json import decode, encode

from vastctl import spawn
from vastctl.client import Client
from vastctl.errors import CliError
from vastd_protocol.errors import ErrorCode
from vastd_protocol.methods import config, doctor, event, reconcile, rental
from vastd_protocol.methods import daemon as daemons

INFO = daemons.DaemonInfo(
    version="0.1.0", pid=4242, started_at="2026-11-30T11:00:00Z", simulated=True
)


def a_status(**changes: Any) -> daemons.DaemonStatusView:
    facts: dict[str, Any] = {
        "daemon": INFO, "state_dir": "/s", "socket": "/s/sock", "vast_url": "http://127.0.0.1:9",
        "key_origin": "simulator", "inventory_state": "fresh", "inventory_as_of": "2026-11-30T11:59:50Z",
    }  # fmt: skip
    return daemons.DaemonStatusView(**{**facts, **changes})


def test_doctor_tells_each_check_with_its_fix(vastctl: Callable[..., Any], daemon: Any) -> None:
    checks = [
        doctor.CheckView(id="key", level="ok", text="key from VAST_API_KEY", fix="unused"),
        doctor.CheckView(id="credit", level="warning", text="credit $1.20", fix="add credit"),
        doctor.CheckView(
            id="ssh", level="blocker", text="no ssh", fix="apt install openssh-client"
        ),
    ]
    daemon.on("doctor.run", doctor.DoctorView(checks=checks, blockers=1, warnings=1))

    ran = vastctl("doctor")

    assert ran.code == 4
    assert (
        ran.out
        == """\
ok       key from VAST_API_KEY
WARNING  credit $1.20
         Fix: add credit
BLOCKER  no ssh
         Fix: apt install openssh-client
1 warning, 1 blocker
"""
    )
    daemon.on("doctor.run", doctor.DoctorView(checks=checks[:2], warnings=1))
    assert vastctl("doctor").code == 0


def test_doctor_without_a_daemon_checks_what_it_can(
    vastctl: Callable[..., Any], daemon: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VAST_API_KEY", "verysecret")
    daemon.absent = 2

    ran = vastctl("doctor")

    assert ran.code == 3
    assert "BLOCKER  vastd is not running at /run/vastd.sock\n         Fix: start it:" in ran.out
    assert "ok       Python" in ran.out
    assert "verysecret" not in ran.out + ran.err
    assert decode(vastctl("doctor", "--json").out)["blockers"] >= 1


@pytest.mark.parametrize(
    "words", [("help",), ("--help",), (), ("help", "run"), ("run", "--help"), ("job", "-h")]
)
def test_json_help_is_one_document_like_every_other(
    vastctl: Callable[..., Any], words: tuple[str, ...]
) -> None:
    plain, as_json = vastctl(*words), vastctl("--json", *words)

    assert decode(as_json.out) == {"help": plain.out.rstrip("\n")}
    assert as_json.code == 0


def test_an_unknown_method_is_a_mistake_of_who_typed_it(
    vastctl: Callable[..., Any], daemon: Any, make: Any
) -> None:
    daemon.in_turn("no.such", make.refuse(ErrorCode.METHOD_NOT_FOUND, "no method 'no.such'"))

    ran = vastctl("rpc", "no.such")

    assert ran.code == 2
    assert "`vastctl rpc rpc.discover` lists the methods" in ran.err
    # Nobody typed the methods of the other commands: there the versions differ.
    daemon.in_turn("rental.list", make.refuse(ErrorCode.METHOD_NOT_FOUND, "no such method"))
    assert "vastctl version" in vastctl("ls").err


def test_config_shows_origin_and_writes_typed_values(
    vastctl: Callable[..., Any], daemon: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = config.SettingView(
        key="timing.settle_s", value=30, origin="default", default=30, source="I3"
    )
    daemon.on("config.get", config.ConfigView(path="/c", settings=[setting]))
    daemon.on("config.set", config.ChangedView(**structs.asdict(setting), also=[setting]))

    assert vastctl("config", "get", "timing").out.splitlines()[1].split() == [
        "timing.settle_s", "30", "default", "30",
    ]  # fmt: skip
    assert "I3" in vastctl("config", "get", "--explain").out
    assert vastctl("config", "set", "a.b=40", "c=true", "d=word", "e=null", "f=0.5").code == 0
    (sent,) = daemon.asked("config.set")  # all or none
    assert (sent["key"], sent["value"]) == ("a.b", 40)
    assert sent["also"] == {"c": True, "d": "word", "e": None, "f": 0.5}
    assert vastctl("config", "set", "a.b").code == 2
    assert vastctl("config", "set", "a=[1]").code == 2
    monkeypatch.setenv("VASTD_CONFIG", "/etc/v.toml")
    daemon.absent = 1
    assert vastctl("config", "path").out == "/etc/v.toml\n"
    assert decode(vastctl("config", "path", "--json").out) == {
        "path": "/etc/v.toml",
        "project_path": None,
    }


def test_events_are_lines_and_json_is_the_result(vastctl: Callable[..., Any], daemon: Any) -> None:
    view = event.EventListView(
        events=[
            event.EventView(
                cursor=7,
                at="2026-11-30T11:00:00Z",
                kind="create_sent",
                rental_id="r-1",
                reason="renting",
            )
        ],
        cursor=7,
    )
    daemon.on("event.list", view)

    ran = vastctl("events", "--since", "2h", "--rental", "r-1")

    assert ran.out == "     7  2026-11-30 11:00:00  create_sent         r-1  renting\n"
    assert daemon.asked("event.list") == [{"since_s": 7200.0, "rental": "r-1"}]
    assert vastctl("events", "--json").out_bytes == encode(view) + b"\n"


def test_followed_events_go_on_behind_the_last_cursor_across_a_restart(
    vastctl: Callable[..., Any], daemon: Any
) -> None:
    def first(params: dict[str, Any]) -> event.EventSubscriptionView:
        daemon.event(8, "a", "eight")
        daemon.event(8, "a", "eight")
        daemon.links[-1].broken = True
        return event.EventSubscriptionView(subscription_id="e", cursor=params["after"])

    def second(params: dict[str, Any]) -> event.EventSubscriptionView:
        assert params["after"] == 8
        daemon.event(9, "b", "nine")
        return event.EventSubscriptionView(subscription_id="f", cursor=params["after"])

    daemon.on("event.list", event.EventListView(cursor=7))
    daemon.in_turn("event.subscribe", first, second)

    ran = vastctl("events", "-f", "--timeout", "0.05")

    assert ran.code == 8
    assert [line.split()[0] for line in ran.out.splitlines()] == ["8", "9"]


def test_rpc_passes_any_method_through(
    vastctl: Callable[..., Any], daemon: Any, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon.on("future.method", {"a": [1, None]})

    assert vastctl("rpc", "future.method", '{"x": 1}').out == '{"a":[1,null]}\n'
    assert daemon.asked("future.method") == [{"x": 1}]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"[null]")))
    assert vastctl("rpc", "future.method", "-").code == 0
    assert vastctl("rpc", "future.method", "{x}").code == 2
    assert vastctl("rpc", "future.method", "7").code == 2


def test_version_tells_both_and_needs_no_daemon(vastctl: Callable[..., Any], daemon: Any) -> None:
    old = daemons.DaemonInfo(version="0.0.9", pid=1, started_at="x", simulated=False)
    daemon.on("initialize", daemons.InitializeView(protocol_version=1, daemon=old))

    ran = vastctl("version")

    assert ran.out.splitlines() == [
        "vastctl 0.1.0 (protocol 1)",
        "vastd 0.0.9 (protocol 1, pid 1, since x)",
    ]
    assert "restart vastd" in ran.err
    daemon.absent = 2
    assert "vastd: vastd is not running" in vastctl("--version").out
    assert decode(vastctl("version", "--json").out)["daemon"] is None


# -- daemon --------------------------------------------------------------------------------


def test_status_tells_what_a_user_asks(vastctl: Callable[..., Any], daemon: Any) -> None:
    daemon.on(
        "daemon.status", a_status(rentals_live=2, dph_usd=0.6, renting_locked="store damaged")
    )

    ran = vastctl("daemon", "status")

    assert ran.code == 0
    assert "vastd      0.1.0, pid 4242, up 1h00m\n" in ran.out
    assert "machines   2, $0.600/h\n" in ran.out
    assert "inventory  fresh, 10s old\n" in ran.out
    assert "nothing new is rented: store damaged" in ran.err
    daemon.absent = 1
    assert vastctl("daemon", "status").code == 3


def test_starting_twice_is_no_error_but_never_swaps_real_for_simulated(
    vastctl: Callable[..., Any], daemon: Any
) -> None:
    daemon.on("daemon.status", a_status())
    assert "vastd runs already on the simulated Vast: pid 4242" in vastctl("daemon", "start").out
    real = daemons.DaemonInfo(version="0.1.0", pid=1, started_at="x", simulated=False)
    daemon.on("daemon.status", a_status(daemon=real))
    assert vastctl("daemon", "start", "--simulate").code == 1


def test_start_spawns_vastd_and_waits_until_it_answers(
    vastctl: Callable[..., Any], daemon: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = tmp_path / "vastd"
    script.write_text('#!/bin/sh\necho "$@" "$VASTD_SOCKET"\n')
    script.chmod(0o755)
    monkeypatch.setattr(spawn, "vastd_command", lambda: [str(script)])
    monkeypatch.setattr(spawn, "LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(spawn.subprocess.Popen, "poll", lambda _self: None)
    daemon.on("daemon.status", a_status())
    daemon.absent = 3

    ran = vastctl("daemon", "start", "--simulate", "--socket", "/run/x")

    assert ran.code == 0
    assert "vastd started on the simulated Vast: pid 4242" in ran.out
    assert daemon.absent == 0
    log = tmp_path / "state" / "logs" / "vastd.log"
    assert (log.stat().st_mode & 0o777, log.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_a_vastd_that_ends_at_once_shows_its_last_words(tmp_path: Path, daemon: Any) -> None:
    log = tmp_path / "vastd.log"
    log.write_text("old line\nerror: unknown key 'timing.setle_s'\n")
    daemon.absent = 10

    with pytest.raises(CliError, match=r"unknown key 'timing\.setle_s'") as caught:
        spawn.await_answer(Client(daemon.connect), lambda: 4, log)

    assert caught.value.exit_code == 4


def test_stop_waits_for_the_end_and_names_what_goes_on_billing(
    vastctl: Callable[..., Any], daemon: Any, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched: list[int] = []
    monkeypatch.setattr(
        "vastctl.commands.daemon.await_end", lambda pid: watched.append(pid) is None
    )
    daemon.on("daemon.status", a_status())
    daemon.on("daemon.stop", daemons.StopView(rentals_live=1, dph_usd=0.3))

    ran = vastctl("daemon", "stop")

    assert (ran.code, watched) == (0, [4242])
    assert "1 machine on record, $0.300/h: billing goes on without it" in ran.err
    daemon.in_turn("daemon.stop", make.lose)
    assert vastctl("daemon", "stop").code == 0  # it ended before it could answer
    daemon.absent = 1
    assert vastctl("daemon", "stop").code == 0


def test_the_end_of_a_process_is_seen() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)

    assert spawn.await_end(child, limit_s=5.0)
    assert spawn.alive(os.getpid())


def test_daemon_logs_show_the_end_of_the_file(vastctl: Callable[..., Any], tmp_path: Path) -> None:
    assert vastctl("daemon", "logs").code == 5
    folder = tmp_path / "state" / "logs"
    folder.mkdir(parents=True)
    (folder / "vastd.log").write_text("".join(f"line {n}\n" for n in range(300)))

    assert vastctl("daemon", "logs", "-n", "2").out == "line 298\nline 299\n"
    assert len(vastctl("daemon", "logs").out.splitlines()) == 100


def test_acknowledge_lists_strangers_and_unlocks(vastctl: Callable[..., Any], daemon: Any) -> None:
    inventory = rental.InventoryView(state="fresh", orphans=1, foreign=1)
    view = reconcile.ReconcileView(
        inventory=inventory,
        orphans=[
            reconcile.StrangerView(
                whose="orphan", instance_id=7, label="vastd-x-r-9", status="running", dph_usd=0.4
            )
        ],
        foreign=[reconcile.StrangerView(instance_id=8, whose="foreign")],
    )
    daemon.on("reconcile.run", view)

    ran = vastctl("daemon", "acknowledge")

    assert ran.code == 0
    assert (
        "7         orphan: our label, no rental  -    running  $0.400/h    -  vastd-x-r-9"
        in ran.out
    )
    assert "8         not of any vastd" in ran.out
    assert daemon.asked("reconcile.run")[0]["acknowledge"] is True


def test_doctor_without_a_daemon_and_a_key_recommends_the_file_before_the_variable(
    vastctl: Callable[..., Any], daemon: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("VAST_API_KEY", raising=False)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    daemon.absent = 1

    told = vastctl("doctor").out

    assert "(umask 077; mkdir -p ~/.config/vastai; cat > ~/.config/vastai/vast_api_key)" in told
    assert told.index("umask") < told.index("VAST_API_KEY")
