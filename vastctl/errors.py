"""What `vastctl` raises: a sentence, a remedy, and the exit code (CONTRACT 2)."""

from typing import Final

from msgspec import Raw

from vastd_protocol.errors import ExitCode

LOCAL_CODE: Final = 0  # `--json` error objects made here, not by vastd: no JSON-RPC code is 0


class CliError(Exception):
    """The root of our errors. `hint` is the remedy, or empty."""

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        exit_code: int = ExitCode.FAILED,
        wire: bytes = b"",
    ) -> None:
        super().__init__(message)
        self.hint = hint
        self.exit_code = int(exit_code)
        self.wire = wire  # the daemon's error object as it came, empty when we made the error

    def as_json(self) -> bytes:
        """Return `{"error": {code, message, data}}`; a daemon's object is passed on unchanged."""
        from msgspec.json import encode

        if self.wire:
            return encode({"error": Raw(self.wire)})
        try:
            kind = ExitCode(self.exit_code).name.lower()
        except ValueError:
            kind = "failed"
        data = {"kind": kind, "hint": self.hint, "exit_code": self.exit_code}
        return encode({"error": {"code": LOCAL_CODE, "message": str(self), "data": data}})


class UsageError(CliError):
    """The command line is wrong, or a confirmation is missing: nothing was asked of vastd."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint, exit_code=ExitCode.USAGE)


class ConnectionLost(CliError):
    """The socket broke before the answer: the request may have been carried out."""

    def __init__(self, message: str, *, exit_code: int = ExitCode.UNREACHABLE) -> None:
        super().__init__(
            message,
            hint="see `vastctl daemon status`, then `vastctl ls` for what happened meanwhile",
            exit_code=exit_code,
        )


class DaemonAbsent(CliError):
    """Nobody listens on any socket of ours: nothing was asked."""

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message, hint=hint, exit_code=ExitCode.UNREACHABLE)


class AnswerLate(CliError):
    """No answer within the limit: vastd goes on with the request."""

    def __init__(self, message: str) -> None:
        super().__init__(
            message,
            hint="vastd goes on with it; see `vastctl ls` and `vastctl events`, or give `--timeout`",
            exit_code=ExitCode.TIMED_OUT,
        )
