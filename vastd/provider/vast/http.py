"""One HTTP request to Vast: sending it, bounding it, and saying whether it may have arrived.

Rules
1. The key is in the Authorization header and nowhere else: not in a URL, log, error or repr.
2. A request is sent at most once per address. Only a 307/308 to the same origin is followed:
   such an answer says that nothing was done here.
3. Every request has its own connection. The pace Vast allows makes reuse worthless, and a
   reused connection that Vast closed meanwhile turns a create into an unknown outcome.
4. No cookies: Vast counts requests per session too (VAST_API 1).
"""

import http.cookiejar
import ipaddress
import logging
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Final, Protocol, Self

import httpx2
import msgspec
import trio
from msgspec import Struct, field

from vastd.errors import ConfigError, NoAnswer, OutcomeUnknown, Unreachable
from vastd.provider.keys import Key
from vastd.provider.vast.operations import Call

log = logging.getLogger(__name__)

DEFAULT_URL: Final = "https://console.vast.ai"
MAX_BODY_BYTES: Final = 32 * 1024 * 1024  # guess: 25 instance rows or 64 offers are below 1 MB
CONNECT_TIMEOUT_S: Final = 15.0  # guess
MAX_REDIRECTS: Final = 3  # guess: one is seen, for a missing trailing slash
RESEND_STATUSES: Final = frozenset({307, 308})  # RFC 9110: same method, same body, elsewhere

# What httpx raises before a byte of our request has left: name, route, refusal, TLS handshake,
# the CONNECT of a proxy, the wait for a connection of our own pool.
_NOTHING_SENT: Final = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.ProxyError,
    httpx2.UnsupportedProtocol,
    httpx2.InvalidURL,
)


class HttpRequest(Struct, frozen=True, kw_only=True):
    """A request without host and key."""

    call: Call
    method: str
    path: str  # "/api/v0/…/", digits and fixed words only
    query: dict[str, str] = field(default_factory=dict)
    body: dict[str, object] | None = None  # None on GET
    timeout_s: float  # for the whole exchange


class Reply(Struct, frozen=True, kw_only=True):
    """An answer that arrived completely, whatever it says."""

    status: int
    headers: dict[str, str]  # names in lower case
    body: bytes


class DateWitness(Protocol):
    """Who wants to know what time it is at Vast (`clocks.Clock`)."""

    def asked(self) -> float:
        """Return a mark (seconds): a request is about to be sent."""
        ...

    def heard(self, date: float, took_s: float) -> None:
        """Take the `Date` (epoch s) of an answer that came `took_s` after its mark."""
        ...


class VastHttp:
    """The way to one Vast account: base URL, key, proxy. Close it, or use `async with`."""

    def __init__(
        self,
        *,
        key: Key,
        base_url: str = DEFAULT_URL,
        version: str,
        transport: httpx2.AsyncBaseTransport | None = None,
        witness: DateWitness | None = None,
    ) -> None:
        self._witness = witness
        self._base = _checked_base(base_url)
        self._key = key
        self._headers = {
            "Accept": "application/json",
            # What is not compressed cannot grow beyond the bound on the way to us.
            "Accept-Encoding": "identity",
            "User-Agent": f"vastd/{version}",
        }
        loopback = _is_loopback(self._base.host)
        if self._base.scheme == "http" and not loopback:
            log.warning("%s is not encrypted: the api key travels in clear text", self._base)
        try:
            self._client = httpx2.AsyncClient(
                transport=transport,
                # A proxy of the environment cannot reach this machine's loopback.
                trust_env=not loopback,
                follow_redirects=False,
                cookies=http.cookiejar.CookieJar(
                    http.cookiejar.DefaultCookiePolicy(allowed_domains=[])
                ),
                limits=httpx2.Limits(max_connections=None, max_keepalive_connections=0),
            )
        except (ValueError, ImportError, httpx2.InvalidURL, OSError) as error:
            # The text of a proxy variable may hold a password, so the reason is not quoted.
            raise ConfigError(
                f"cannot set up https: {type(error).__name__}",
                hint="check HTTPS_PROXY, ALL_PROXY, NO_PROXY, SSL_CERT_FILE and SSL_CERT_DIR",
            ) from None

    @property
    def base_url(self) -> str:
        """The address in use, without a trailing slash."""
        return str(self._base).rstrip("/")

    def __repr__(self) -> str:
        return f"VastHttp({self.base_url!r})"

    async def aclose(self) -> None:
        await self._client.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def send(self, request: HttpRequest) -> Reply:
        """Send `request` once and return the complete answer, of whatever status.

        Raises:
            Unreachable: no connection was made; nothing was done.
            NoAnswer: it may have arrived; no complete answer came back.
            OutcomeUnknown: it arrived; the answer is not to be read.
        """
        with trio.move_on_after(request.timeout_s) as limit:
            reply = await self._follow(request)
        if limit.cancelled_caught:
            raise NoAnswer(
                f"cannot {request.call}: no complete answer within {request.timeout_s:g} s"
            )
        log.debug("%s: %s %s: %d", request.call, request.method, request.path, reply.status)
        return reply

    async def _follow(self, request: HttpRequest) -> Reply:
        url = self._base.copy_with(
            raw_path=self._base.raw_path.rstrip(b"/") + request.path.encode("ascii")
        ).copy_merge_params(request.query)
        reply = await self._exchange(request, url)
        for _ in range(MAX_REDIRECTS):
            target = self._resend_to(reply, url)
            if target is None:
                break
            log.debug("%s: redirected to %s", request.call, target.path)
            url = target
            reply = await self._exchange(request, url)
        return reply

    def _resend_to(self, reply: Reply, url: httpx2.URL) -> httpx2.URL | None:
        """Return where the same request belongs, or None when it is not to be sent again."""
        location = reply.headers.get("location")
        if reply.status not in RESEND_STATUSES or not location:
            return None
        try:
            target = url.join(location)
        except httpx2.InvalidURL:
            return None
        origin = (self._base.scheme, self._base.host, self._base.port)
        # Elsewhere the key would be shown to a stranger.
        return target if (target.scheme, target.host, target.port) == origin else None

    async def _exchange(self, request: HttpRequest, url: httpx2.URL) -> Reply:
        content = None if request.body is None else msgspec.json.encode(request.body)
        headers = self._headers | {"Authorization": f"Bearer {self._key.secret.reveal()}"}
        if content is not None:
            headers["Content-Type"] = "application/json"
        timeout = httpx2.Timeout(
            request.timeout_s, connect=min(CONNECT_TIMEOUT_S, request.timeout_s)
        )
        mark = 0.0 if self._witness is None else self._witness.asked()
        try:
            async with self._client.stream(
                request.method, url, content=content, headers=headers, timeout=timeout
            ) as response:
                self._tell_date(response.headers, mark)
                body = await self._bounded_body(request, response)
                return Reply(
                    status=response.status_code, headers=_plain(response.headers), body=body
                )
        except _NOTHING_SENT as error:
            raise Unreachable(
                f"cannot {request.call}: no connection to {self._base.host}: {_reason(error)}",
                hint="check the network and, if set, the proxy variables and VAST_URL",
            ) from error
        except (httpx2.RequestError, OSError) as error:
            raise NoAnswer(
                f"cannot {request.call}: the connection to {self._base.host} broke: "
                f"{_reason(error)}"
            ) from error

    def _tell_date(self, headers: httpx2.Headers, mark: float) -> None:
        """Any answer tells the time, also a refusal; one out of a cache tells a past one."""
        date = _date(headers.get("date", ""))
        if self._witness is not None and date is not None and headers.get("age", "0") == "0":
            self._witness.heard(date, self._witness.asked() - mark)

    async def _bounded_body(self, request: HttpRequest, response: httpx2.Response) -> bytes:
        encoding = response.headers.get("content-encoding", "identity")
        if encoding != "identity":
            raise OutcomeUnknown(
                f"cannot {request.call}: the answer is encoded as {encoding[:20]!r}, unasked for"
            )
        body = bytearray()
        # Left by cancelling: httpx2 2.16 does not close its inner generators after a `break`.
        with trio.CancelScope() as reading:
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > MAX_BODY_BYTES:
                    reading.cancel()
        if len(body) > MAX_BODY_BYTES:
            raise OutcomeUnknown(
                f"cannot {request.call}: the answer is larger than {MAX_BODY_BYTES} bytes"
            )
        return bytes(body)


def _date(text: str) -> float | None:
    """Return an HTTP date (RFC 9110, 5.6.7) as epoch seconds; None when it cannot be read."""
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return None


def _plain(headers: httpx2.Headers) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__


def _checked_base(base_url: str) -> httpx2.URL:
    """Return the address as a URL.

    Raises:
        ConfigError: it is not an http or https address of a host, or carries more than that.
    """
    hint = f"set vast.url or VAST_URL to an address such as {DEFAULT_URL}"
    try:
        url = httpx2.URL(base_url.strip())
    except (httpx2.InvalidURL, TypeError, ValueError):
        raise ConfigError("the vast url cannot be read", hint=hint) from None
    if url.scheme not in ("http", "https") or not url.host:
        raise ConfigError(f"the vast url {base_url!r} is not an http(s) address", hint=hint)
    if url.userinfo or url.query or url.fragment:
        # Not quoted: this is where people put keys.
        raise ConfigError("the vast url must not hold a user, a query or a fragment", hint=hint)
    return url


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
