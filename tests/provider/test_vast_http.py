"""One request over a real socket: what breaks, what that means, and what never leaks."""

import logging
from contextlib import suppress

import httpx2
import pytest
import trio
from trio.testing import MockClock

from support.loopback_http import (
    Arrived,
    Behaviour,
    http,
    resetting_after,
    saying,
    serving,
    silent_after,
)
from support.scripted_vast import SECRET, a_key
from vastd.errors import ConfigError, OutcomeUnknown, Unreachable
from vastd.provider.vast import http as vast_http
from vastd.provider.vast.http import HttpRequest, Reply, VastHttp
from vastd.provider.vast.operations import Call, Operation

CREATE = Call(operation=Operation.CREATE, subject="from offer 7001")


def a_request(*, timeout_s: float = 5.0, path: str = "/api/v0/asks/7001/") -> HttpRequest:
    return HttpRequest(call=CREATE, method="PUT", path=path, body={"a": 1}, timeout_s=timeout_s)


async def send(url: str, request: HttpRequest | None = None) -> Reply:
    async with VastHttp(key=a_key(), base_url=url, version="1.2.3") as client:
        return await client.send(request or a_request())


async def test_a_request_arrives_once_with_key_agent_and_body():
    async with serving(saying(http(200, b'{"success": true}'))) as server:
        reply = await send(server.url)

    (arrived,) = server.arrived
    assert (reply.status, reply.body) == (200, b'{"success": true}')
    assert (arrived.method, arrived.target, arrived.body) == (
        "PUT", "/api/v0/asks/7001/", b'{"a":1}',
    )  # fmt: skip
    assert arrived.headers["authorization"] == f"Bearer {SECRET}"
    assert arrived.headers["user-agent"] == "vastd/1.2.3"
    assert arrived.headers["content-type"] == "application/json"
    assert arrived.headers["accept-encoding"] == "identity"


class Listener:
    """A witness that remembers."""

    def __init__(self) -> None:
        self.dates: list[float] = []

    def asked(self) -> float:
        return 7.0

    def heard(self, date: float, took_s: float) -> None:
        assert took_s == 0.0
        self.dates.append(date)


@pytest.mark.parametrize(
    ("status", "headers", "heard"),
    [
        (200, {"Date": "Tue, 01 Dec 2026 12:00:00 GMT"}, [1_796_126_400.0]),
        (429, {"Date": "Tue, 01 Dec 2026 12:00:00 GMT"}, [1_796_126_400.0]),
        (200, {"Date": "Tue, 01 Dec 2026 12:00:00 GMT", "Age": "0"}, [1_796_126_400.0]),
        (200, {"Date": "Tue, 01 Dec 2026 12:00:00 GMT", "Age": "40"}, []),
        (200, {"Date": "the day after tomorrow"}, []),
        (200, {"Date": "Tue, 01 Dec 999999999 12:00:00 GMT"}, []),
        (200, {}, []),
    ],
)
async def test_the_time_of_every_answer_is_heard_unless_a_cache_gave_it(
    status: int, headers: dict[str, str], heard: list[float]
) -> None:
    witness = Listener()
    transport = httpx2.MockTransport(
        lambda _: httpx2.Response(status, headers=headers, stream=httpx2.ByteStream(b"{}"))
    )
    async with VastHttp(
        key=a_key(),
        base_url="https://vast.example",
        version="1",
        transport=transport,
        witness=witness,
    ) as client:
        await client.send(a_request())

    assert witness.dates == heard


async def test_a_prefix_in_the_address_is_kept_and_the_query_is_encoded():
    request = HttpRequest(
        call=Call(operation=Operation.LIST), method="GET", path="/api/v1/instances/",
        query={"order_by": '[{"col":"id"}]', "after_token": "a+b/c=="}, timeout_s=5.0,
    )  # fmt: skip

    async with serving(saying(http(200, b"{}"))) as server:
        await send(f"{server.url}/prefix/", request)

    target = server.arrived[0].target
    assert target.startswith("/prefix/api/v1/instances/?")
    assert "after_token=a%2Bb%2Fc%3D%3D" in target
    assert server.arrived[0].body == b""
    assert "content-type" not in server.arrived[0].headers


@pytest.mark.req("CRE-09")
@pytest.mark.parametrize(
    "behaviour",
    [
        resetting_after(b""),
        resetting_after(b"HTTP/1.1 200 OK\r\nContent-Le"),
        resetting_after(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + b'{"success"'),
        saying(b""),
        saying(b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"success": true, "new_'),
        saying(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc"),
        saying(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
        saying(b"220 smtp.example ESMTP\r\n"),
        saying(b"\x16\x03\x01\x02\x00" + b"\x00" * 200),
        saying(http(200, b"not gzip", Content_Encoding="gzip")),
        saying(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 300_000),
    ],
)
async def test_a_broken_answer_is_an_unknown_outcome_and_the_request_is_not_repeated(
    behaviour: Behaviour,
):
    async with serving(behaviour) as server:
        with pytest.raises(OutcomeUnknown, match="cannot create from offer 7001"):
            await send(server.url)

    assert len(server.arrived) == 1


@pytest.mark.parametrize(
    "behaviour",
    [
        silent_after(b""),
        silent_after(b"HTTP/1.1 200 OK\r\n"),
        silent_after(b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"success"'),
    ],
)
async def test_silence_ends_at_the_time_limit_with_an_unknown_outcome(
    behaviour: Behaviour, mock_clock: MockClock
):
    async with serving(behaviour) as server, trio.open_nursery() as nursery:

        async def let_time_pass() -> None:
            await server.first_arrived.wait()
            mock_clock.jump(60.0)

        nursery.start_soon(let_time_pass)
        with pytest.raises(OutcomeUnknown):
            await send(server.url, a_request(timeout_s=60.0))

    assert len(server.arrived) == 1
    assert trio.current_time() == 60.0


async def test_a_trickle_cannot_outlast_the_time_limit(mock_clock: MockClock):
    """Every byte resets a read time-out; the limit is on the whole exchange."""

    async def trickle(stream: trio.SocketStream, _arrived: Arrived) -> None:
        await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        with suppress(trio.BrokenResourceError):
            while True:
                await stream.send_all(b" ")
                mock_clock.jump(1.0)

    async with serving(trickle) as server:
        with pytest.raises(OutcomeUnknown, match="no complete answer within 60 s"):
            await send(server.url, a_request(timeout_s=60.0))

    assert trio.current_time() >= 60.0


async def test_a_closed_port_means_that_nothing_was_sent():
    async with serving(saying(b"")) as server:
        url = server.url

    with pytest.raises(Unreachable, match=r"no connection to 127\.0\.0\.1"):
        await send(url)


async def test_a_name_that_does_not_resolve_means_that_nothing_was_sent():
    with pytest.raises(Unreachable, match=r"no connection to nowhere\.invalid"):
        await send("http://nowhere.invalid")


async def test_a_failed_tls_handshake_means_that_nothing_was_sent():
    async with serving(saying(b"plain text")) as server:
        with pytest.raises(Unreachable):
            await send(server.url.replace("http://", "https://"))

    assert server.arrived == []


async def test_cancelling_from_outside_is_not_swallowed():
    answered = False

    async def ask(url: str) -> None:
        nonlocal answered
        await send(url)
        answered = True

    async with serving(silent_after(b"")) as server, trio.open_nursery() as nursery:
        nursery.start_soon(ask, server.url)
        await server.first_arrived.wait()
        nursery.cancel_scope.cancel()

    assert nursery.cancel_scope.cancelled_caught
    assert not answered


@pytest.mark.parametrize("status", [307, 308])
async def test_a_redirection_on_the_same_host_is_followed_with_method_body_and_key(status: int):
    async def behave(stream: trio.SocketStream, arrived: Arrived) -> None:
        here = arrived.target == "/elsewhere/?x=1"
        await stream.send_all(
            http(200, b"{}") if here else http(status, Location="/elsewhere/?x=1")
        )

    async with serving(behave) as server:
        reply = await send(server.url)

    first, second = server.arrived
    assert reply.status == 200
    assert (second.method, second.body) == (first.method, first.body)
    assert second.headers["authorization"] == f"Bearer {SECRET}"


@pytest.mark.parametrize(
    ("status", "location"),
    [
        (308, "https://console.vast.ai/"),
        (308, "http://127.0.0.2:1/"),
        (308, "//evil.example/"),
        (308, ""),
        (308, "http://[broken"),
        (302, "/elsewhere/"),
        (301, "/elsewhere/"),
        (303, "/elsewhere/"),
    ],
)
async def test_no_other_redirection_is_followed(status: int, location: str):
    async with serving(saying(http(status, Location=location))) as server:
        reply = await send(server.url)

    assert reply.status == status
    assert len(server.arrived) == 1


async def test_a_redirection_in_a_circle_ends():
    async with serving(saying(http(308, Location="/round/"))) as server:
        reply = await send(server.url)

    assert reply.status == 308
    assert len(server.arrived) == 4


async def test_an_answer_that_is_too_large_is_cut_off(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(vast_http, "MAX_BODY_BYTES", 1000)

    async with serving(saying(http(200, b"x" * 1001))) as server:
        with pytest.raises(OutcomeUnknown, match="larger than 1000 bytes"):
            await send(server.url)
    async with serving(saying(http(200, b"x" * 1000))) as server:
        assert len((await send(server.url)).body) == 1000


async def test_every_request_has_its_own_connection_and_no_cookie_comes_back():
    """The server would go on with the connection, and tries to recognise us."""
    cookie = http(200, b"{}", Set_Cookie="session=1; Path=/")

    async with (
        serving(silent_after(cookie)) as server,
        VastHttp(key=a_key(), base_url=server.url, version="1") as client,
    ):
        with trio.fail_after(5):
            await client.send(a_request())
            await client.send(a_request())

    assert server.connections == 2
    assert "cookie" not in server.arrived[1].headers


async def test_a_proxy_of_the_environment_is_not_asked_for_loopback(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")

    async with serving(saying(http(200, b"{}"))) as server:
        assert (await send(server.url)).status == 200


async def test_a_proxy_of_the_environment_is_used_for_vast(monkeypatch: pytest.MonkeyPatch):
    """A proxy that refuses the tunnel: nothing reached Vast."""
    async with serving(saying(http(407))) as proxy:
        monkeypatch.setenv("https_proxy", proxy.url.replace("//", "//me:pass-word@"))
        with pytest.raises(Unreachable) as caught:
            await send("https://vast.example")

    assert (proxy.arrived[0].method, proxy.arrived[0].target) == ("CONNECT", "vast.example:443")
    assert SECRET not in str(proxy.arrived)
    assert "pass-word" not in str(caught.value)


def test_a_proxy_that_cannot_be_used_is_reported_without_its_password(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("https_proxy", "gopher://me:pass-word@proxy.example:70")

    with pytest.raises(ConfigError, match="cannot set up https") as caught:
        VastHttp(key=a_key(), base_url="https://vast.example", version="1")

    assert "pass-word" not in f"{caught.value}{caught.value.hint}"


@pytest.mark.parametrize(
    "url",
    [
        "", "console.vast.ai", "ftp://vast.ai", "https://", "https://[::1",
        "https://me:secret@vast.ai", "https://vast.ai/?api_key=secret", "https://vast.ai/#secret",
        "unix:///secret",
    ],
)  # fmt: skip
def test_an_address_that_is_more_or_less_than_one_is_refused(url: str):
    with pytest.raises(ConfigError) as caught:
        VastHttp(key=a_key(), base_url=url, version="1")

    assert "VAST_URL" in caught.value.hint


def test_an_unencrypted_address_elsewhere_is_warned_about(caplog: pytest.LogCaptureFixture):
    VastHttp(key=a_key(), base_url="http://127.0.0.1:80", version="1")
    assert caplog.text == ""

    VastHttp(key=a_key(), base_url="http://vast.example", version="1")
    assert "clear text" in caplog.text


async def test_the_key_is_in_no_log_repr_or_error(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    shown: list[str] = []

    for behaviour in (saying(http(200, b"{}")), saying(http(401, b"{}")), resetting_after(b"")):
        async with (
            serving(behaviour) as server,
            VastHttp(key=a_key(), base_url=server.url, version="1") as client,
        ):
            shown.append(repr(client) + repr(vars(client)))
            try:
                shown.append(repr(await client.send(a_request())))
            except OutcomeUnknown as error:
                cause = error.__cause__
                shown.append(f"{error!r} {error.hint} {cause!r} {vars(cause)}")

    assert len(caplog.records) > 10  # the libraries do speak at this level
    assert SECRET not in caplog.text + "".join(shown)
