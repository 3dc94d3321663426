"""`hosts`: what a person reads of machines, and what is asked for a block."""

from collections.abc import Callable
from typing import Any

from vastd_protocol.methods import host

AT = "2026-11-30T12:00:00Z"


def a_host(machine_id: int, **changes: Any) -> host.HostView:
    return host.HostView(machine_id=machine_id, gpu_name="RTX 4090", rented=2, **changes)


def a_death(why: str) -> host.DeathView:
    return host.DeathView(rental_id="r-1", end_reason="boot_overdue", why=why, at=AT)


def test_the_list_tells_what_is_known_and_why_not(vastctl: Callable[..., Any], daemon: Any) -> None:
    block = host.BlockView(why="stuck", by="vastd", since=AT, until=None)
    own = host.BlockView(why="noisy", by="user", since=AT)
    speed = host.SpeedView(mbps=412.6, source="a boot", at=AT)
    hosts = [
        a_host(1, block=block, failed=1), a_host(2, block=own),
        a_host(31337, boot_s=42.0, down=speed, route="proxy"),
    ]  # fmt: skip
    daemon.on("host.list", host.HostListView(hosts=hosts))

    ran = vastctl("hosts", "ls")

    assert ran.code == 0
    assert ran.out.splitlines() == [
        "MACHINE  GPU       RENTED  FAILED  BOOT      DOWN  UP  SSH    WHY NOT",
        "      1  RTX 4090       2       1     -         -   -  -      blocked by vastd: stuck",
        "      2  RTX 4090       2       0     -         -   -  -      blocked by you: noisy",
        "  31337  RTX 4090       2       0   42s  413 Mb/s   -  proxy",
    ]
    assert daemon.asked("host.list") == [{}]


def test_nothing_known_is_said_and_is_no_error(vastctl: Callable[..., Any], daemon: Any) -> None:
    daemon.on("host.list", host.HostListView())

    ran = vastctl("hosts", "ls", "--blocked")

    assert (ran.code, ran.out) == (0, "")
    assert "no machine is blocked" in ran.err
    assert daemon.asked("host.list") == [{"blocked": True}]


def test_a_block_needs_a_reason_and_sends_the_instant(
    vastctl: Callable[..., Any], daemon: Any
) -> None:
    daemon.on("host.block", a_host(7))

    ran = vastctl("hosts", "block", "7", "--reason", "slow disk", "--for", "7d")
    without = vastctl("hosts", "block", "7")

    assert (ran.code, without.code) == (0, 2)
    (asked,) = daemon.asked("host.block")
    assert (asked["machine_id"], asked["reason"]) == (7, "slow disk")
    assert asked["until"].endswith("Z")
    assert "for 7d" in ran.err


def test_a_block_without_a_time_has_no_end(vastctl: Callable[..., Any], daemon: Any) -> None:
    daemon.on("host.block", a_host(7))

    ran = vastctl("hosts", "block", "7", "--reason", "slow disk")

    assert "until" not in daemon.asked("host.block")[0]
    assert "until it is unblocked" in ran.err


def test_unblock_names_the_machine(vastctl: Callable[..., Any], daemon: Any) -> None:
    daemon.on("host.unblock", a_host(7))

    ran = vastctl("hosts", "unblock", "7")

    assert ran.code == 0
    assert daemon.asked("host.unblock")[0]["machine_id"] == 7
    assert "machine 7 may be rented" in ran.err
