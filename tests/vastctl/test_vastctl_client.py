"""The connection: whole answers from bytes cut anywhere, safe repeats, bounded waits, absence."""

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.json import encode

from vastctl import link
from vastctl.client import Client, DaemonError
from vastctl.errors import AnswerLate, CliError, ConnectionLost, DaemonAbsent
from vastd_protocol import envelope
from vastd_protocol.framing import frame
from vastd_protocol.methods import daemon as daemons
from vastd_protocol.methods import rental

LIST = rental.LIST
EVERYTHING = rental.RentalListParams()
EMPTY = encode({"rentals": [], "inventory": {"state": "fresh"}})


@pytest.fixture
def pair() -> Any:
    """A client on a real socket whose other end the test holds."""
    ours, theirs = socket.socketpair()
    connections = [link.SocketLink(ours, Path("/run/s"))]
    client = Client(connections.pop, timeout_s=0.05, pause=lambda _s: None)
    yield client, theirs
    client.close()
    theirs.close()


def test_an_answer_larger_than_any_buffer_arrives_whole(pair: Any) -> None:
    client, theirs = pair
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8_000_000)
    big = encode("x" * 150_000)
    theirs.sendall(frame(envelope.result(1, big)))

    assert client.once("a", b"{}") == big


def test_answers_are_found_among_notifications_and_late_answers_of_others(pair: Any) -> None:
    client, theirs = pair
    theirs.sendall(
        frame(envelope.notification("progress", b'{"step":"a","done":1}'))
        + frame(envelope.result(99, b'"late"'))
        + frame(envelope.result(1, b'"mine"'))
        + frame(envelope.notification("progress", b'{"step":"b","done":2}'))
    )

    assert client.once("a", b"{}") == b'"mine"'

    kept = [client.receive(0.01) for _ in range(3)]
    assert [message.method for message in kept] == ["progress", None, "progress"]


def test_a_daemon_that_answers_in_lines_is_understood(pair: Any) -> None:
    client, theirs = pair
    theirs.sendall(envelope.result(1, b"1") + b"\n")

    assert client.once("a", b"{}") == b"1"


def test_no_answer_in_time_is_a_timeout_and_not_a_loss(pair: Any) -> None:
    client, _ = pair

    with pytest.raises(AnswerLate) as caught:
        client.once("rental.list", b"{}")

    assert caught.value.exit_code == 8


@pytest.mark.parametrize(
    "noise",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/1.1 400 Bad Request\r\nContent-Length: x\r\n\r\n",
        b"Content-Length: 3\r\n\r\n{]}",
        b"Content-Length: 99999999\r\n\r\n",
        b"{}garbage\n",
        frame(b'{"jsonrpc":"2.0","id":{"a":1},"result":1}'),
        b"\x00" * 9000,
    ],
)
def test_garbage_is_named_and_is_no_traceback(pair: Any, noise: bytes) -> None:
    client, theirs = pair
    theirs.sendall(noise)

    with pytest.raises(CliError, match="cannot be understood") as caught:
        client.call(LIST, EVERYTHING)

    assert caught.value.exit_code == 3


def test_a_result_of_the_wrong_shape_is_named(pair: Any) -> None:
    client, theirs = pair
    theirs.sendall(frame(envelope.result(1, b'{"rentals": 7}')))

    with pytest.raises(CliError, match=r"result of rental\.list"):
        client.call(LIST, EVERYTHING)


@pytest.mark.parametrize(
    "error", [b'{"code":1009}', b'{"code":"x"}', b"[1]", b'{"code":5,"data":[1]}']
)
def test_an_odd_error_object_is_still_an_error(pair: Any, error: bytes) -> None:
    client, theirs = pair
    theirs.sendall(frame(b'{"jsonrpc":"2.0","id":1,"error":' + error + b"}"))

    with pytest.raises(DaemonError) as caught:
        client.call(LIST, EVERYTHING)

    assert str(caught.value)
    assert caught.value.wire == error


def test_a_request_over_the_frame_limit_is_refused_here(pair: Any) -> None:
    client, _ = pair

    with pytest.raises(CliError, match="more than the 16777216 allowed"):
        client.once("a", encode("x" * 17_000_000))


def test_a_read_is_repeated_after_the_connection_broke(daemon: Any, make: Any) -> None:
    notes: list[str] = []
    daemon.in_turn("rental.list", make.lose, {"rentals": [], "inventory": {"state": "fresh"}})
    client = Client(daemon.connect, note=notes.append, pause=lambda _s: None)

    assert client.raw(LIST, EVERYTHING) == EMPTY
    assert notes == [
        "lost the connection to vastd; trying to reach it again",
        "connected to vastd again",
    ]


def test_a_mutation_without_request_id_is_never_repeated(daemon: Any, make: Any) -> None:
    daemon.in_turn("daemon.stop", make.lose)
    client = Client(daemon.connect, pause=lambda _s: None)

    with pytest.raises(ConnectionLost):
        client.raw(daemons.STOP, daemons.StopParams())

    assert len(daemon.requests) == 1


def test_reconnecting_ends_when_the_daemon_stays_away(daemon: Any, make: Any) -> None:
    now = [0.0]

    def pause(seconds: float) -> None:
        now[0] += seconds

    def die(_params: dict[str, Any]) -> None:
        daemon.absent = 10**6
        raise make.lose

    daemon.on("rental.list", die)
    client = Client(daemon.connect, reconnect_s=20.0, clock=lambda: now[0], pause=pause)

    with pytest.raises(ConnectionLost) as caught:
        client.raw(LIST, EVERYTHING)

    assert caught.value.exit_code == 3
    assert 20.0 <= now[0] <= 21.0


def test_a_daemon_that_drops_every_connection_is_given_up(daemon: Any, make: Any) -> None:
    daemon.in_turn("event.subscribe", make.lose)
    client = Client(daemon.connect, reconnect_s=1e9, pause=lambda _s: None)

    def try_for_ever() -> None:
        while True:
            try:
                client.once("event.subscribe", b"{}")
            except ConnectionLost:
                client.reconnect()

    with pytest.raises(DaemonAbsent, match="closes every connection"):
        try_for_ever()


# -- absence -------------------------------------------------------------------------------


def test_an_absent_daemon_says_where_how_to_start_it_and_what_may_bill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VASTD_STATE_DIR", str(tmp_path))
    monkeypatch.delenv("VASTD_SOCKET", raising=False)
    (tmp_path / "vast-instances.json").write_bytes(
        encode([{"status": "running"}, {"status": "destroyed"}, {"status": "destroying"}, 7])
    )

    with pytest.raises(DaemonAbsent) as caught:
        link.connect(str(tmp_path / "vastd.sock"))

    assert str(caught.value) == f"vastd is not running at {tmp_path}/vastd.sock"
    assert "`vastctl daemon start`" in caught.value.hint
    assert "2 rentals are on record and may still bill" in caught.value.hint
    assert caught.value.exit_code == 3


def test_a_socket_nobody_listens_on_is_called_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VASTD_STATE_DIR", str(tmp_path))
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "s"))

    with pytest.raises(DaemonAbsent, match="left its socket behind"):
        link.connect(str(tmp_path / "s"))


@pytest.mark.parametrize("content", [b"", b"{", b"{}", b"null", b'["a"]', b"\xff"])
def test_a_damaged_state_file_never_hides_the_message(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "vast-instances.json").write_bytes(content)

    assert link.live_on_record(tmp_path) == 0


def test_a_socket_path_over_the_systems_limit_has_its_remedy() -> None:
    with pytest.raises(CliError) as caught:
        link.connect("/tmp/" + "x" * 120)

    assert "VASTD_SOCKET" in caught.value.hint
    assert caught.value.exit_code == 4


def test_the_next_candidate_is_tried_when_the_first_is_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = tmp_path / "live"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(live))
        server.listen()
        monkeypatch.setattr(link, "candidates", lambda _named: [tmp_path / "none", live])
        found = link.connect(None)
        server.accept()[0].close()
        with pytest.raises(ConnectionLost, match=str(live)):
            found.receive(1.0)
        found.close()


def test_a_socket_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        server.listen()
        monkeypatch.setattr(link.os, "getuid", lambda: 12345)
        if os.geteuid() == 0:  # root's sockets are trusted, and this test may run as root
            monkeypatch.setattr(link, "_TRUSTED_UIDS", frozenset())
        with pytest.raises(CliError, match="not to you"):
            link.connect(str(tmp_path / "s"))


def test_commands_end_with_3_when_nobody_listens(vastctl: Callable[..., Any], daemon: Any) -> None:
    daemon.absent = 1

    ran = vastctl("ls")

    assert (ran.code, ran.out) == (3, "")
    assert ran.err.startswith("error: vastd is not running at /run/vastd.sock\nhint: start it")


def test_an_absent_daemon_of_the_simulator_is_started_on_it_again_and_bills_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VASTD_STATE_DIR", str(tmp_path))
    (tmp_path / "vast-instances.json").write_text('[{"status": "ready"}]')
    (tmp_path / "simulator").mkdir()
    (tmp_path / "simulator" / "service.json").write_text("{}")

    hint = link.absent(tmp_path / "s", stale=False).hint

    assert "`vastctl daemon start --simulate`" in hint
    assert "1 simulated rental is on record" in hint
    assert "bill" not in hint
