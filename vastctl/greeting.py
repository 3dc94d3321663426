"""The handshake of a connection: which vastd answers, and whether it and this vastctl fit.

Rules
1. It costs no round trip: it is sent in front of the first request and heard with its answer.
2. What spends is not sent before the answer is known, and never to a vastd of another protocol.
   Looking and ending go on with a warning: whoever pays must be able to stop paying.
"""

from collections.abc import Callable
from typing import Final

from msgspec import DecodeError, Struct, field
from msgspec.json import decode, encode

from vastctl.errors import CliError
from vastd_protocol import envelope
from vastd_protocol.errors import ErrorCode, ExitCode
from vastd_protocol.version import PROTOCOL_VERSION, VASTD_VERSION

HELLO_ID: Final = "hello"  # never a number: those are the requests of commands
SPENDS: Final = frozenset(
    {"job.submit", "job.retry", "rental.create", "rental.start", "sweep.submit"}
)
_RENEW: Final = (
    "restart it: `vastctl daemon stop`, then `vastctl daemon start`; machines and jobs go on"
)


class _Daemon(Struct, frozen=True, kw_only=True):
    version: str = "of unknown version"


class _Hello(Struct, frozen=True, kw_only=True):
    protocol_version: int
    daemon: _Daemon = field(default_factory=_Daemon)
    warnings: list[str] = field(default_factory=list)
    clock_ahead_s: float = 0.0


class _Data(Struct, frozen=True, kw_only=True):
    hint: str = ""


class _Refusal(Struct, frozen=True, kw_only=True):
    code: int
    message: str = ""
    data: _Data = field(default_factory=_Data)


class Greeting:
    """Greets on each new connection; tells once what is to know of the vastd that answers."""

    def __init__(self, note: Callable[[str], None], warn: Callable[[str], None]) -> None:
        self._note = note
        self._warn = warn
        self._told: set[str] = set()
        self._mismatch: tuple[str, str] | None = None  # sentence and remedy
        self.pending = False  # sent, and not heard yet
        self.clock_ahead_s = 0.0  # of vastd's instants, as it says

    def request(self) -> bytes:
        """Return what to send first on a new connection."""
        self.pending, self._mismatch = True, None
        me = {"name": "vastctl", "version": VASTD_VERSION}
        params = encode({"protocol_version": PROTOCOL_VERSION, "client": me})
        return envelope.request(HELLO_ID, "initialize", params)

    def hear(self, result: bytes | None, error: bytes | None) -> None:
        """Take the answer: a result or an error object."""
        self.pending = False
        try:
            if result is not None:
                self._accepted(decode(result, type=_Hello))
            elif error is not None:
                self._refused(decode(error, type=_Refusal))
        except DecodeError:
            pass  # whoever speaks so oddly will be named when the request itself is answered

    def require(self, method: str) -> None:
        """Return if `method` may be sent to this vastd.

        Raises:
            CliError: it spends, and the two do not understand each other.
        """
        if method in SPENDS and self._mismatch is not None:
            sentence, remedy = self._mismatch
            raise CliError(
                f"nothing was sent, because it spends money: {sentence}",
                hint=remedy,
                exit_code=ExitCode.UNREACHABLE,  # as `version_mismatch` of the daemon
            )

    def _accepted(self, hello: _Hello) -> None:
        theirs = hello.daemon.version
        if hello.protocol_version != PROTOCOL_VERSION:
            sentence = (
                f"vastctl {VASTD_VERSION} speaks protocol {PROTOCOL_VERSION}, vastd {theirs} "
                f"speaks {hello.protocol_version}"
            )
            ours_is_newer = hello.protocol_version < PROTOCOL_VERSION
            self._mismatch = (sentence, _RENEW if ours_is_newer else "update vastctl")
            self._tell(self._warn, "; ".join(self._mismatch))
        elif theirs != VASTD_VERSION:
            self._tell(
                self._note,
                f"vastd {theirs} is running, and this is vastctl {VASTD_VERSION}: {_RENEW}",
            )
        self.clock_ahead_s = hello.clock_ahead_s
        for warning in hello.warnings:
            self._tell(self._warn, warning)

    def _refused(self, refusal: _Refusal) -> None:
        if refusal.code != ErrorCode.VERSION_MISMATCH:
            return
        self._mismatch = (refusal.message, refusal.data.hint)
        self._tell(self._warn, "; ".join(filter(None, self._mismatch)))

    def _tell(self, how: Callable[[str], None], text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            how(text)
