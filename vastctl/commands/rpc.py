"""`rpc`: any method, raw JSON in, raw JSON out; `rpc --stdio`: the socket itself, for an editor."""

import os
import sys
from argparse import ArgumentParser
from typing import Final

from msgspec import DecodeError
from msgspec.json import decode

from vastctl.client import DaemonError
from vastctl.context import Context
from vastctl.errors import ConnectionLost, UsageError
from vastctl.link import open_socket
from vastd_protocol.errors import ErrorCode, ExitCode
from vastd_protocol.framing import MAX_FRAME_BYTES

EXAMPLES: Final = """\
  vastctl rpc rental.list
  vastctl rpc rental.get '{"rental": "r-1"}'
  echo '{"limit": 5}' | vastctl rpc event.list -
  vastctl rpc --stdio             stdin and stdout become the daemon's socket"""

RPC_S: Final = 3600.0  # guess; held requests such as job.wait are called by hand, too


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "method", metavar="METHOD", nargs="?", help="as listed by `vastctl rpc rpc.discover`"
    )
    parser.add_argument(
        "params",
        metavar="JSON",
        nargs="?",
        default="{}",
        help="parameters; - reads them from stdin",
    )
    parser.add_argument(
        "--stdio", action="store_true", help="carry stdin to the socket and the socket to stdout"
    )


def run(ctx: Context) -> int:
    if ctx.args.stdio:
        return _bridge(ctx)
    if ctx.args.method is None:
        raise UsageError(
            "the method is missing", hint="`vastctl rpc rpc.discover` lists all; or use --stdio"
        )
    body = _stdin() if ctx.args.params == "-" else os.fsencode(ctx.args.params)
    try:
        value = decode(body)
    except (DecodeError, UnicodeDecodeError) as exc:
        raise UsageError(f"the parameters are no JSON: {exc}") from None
    except RecursionError:
        raise UsageError("the parameters are nested too deeply") from None
    if value is not None and not isinstance(value, (dict, list)):
        raise UsageError("the parameters must be a JSON object", hint='as in \'{"rental": "r-1"}\'')
    # Sent once: whether a repeat is safe is known only to who wrote the parameters.
    try:
        ctx.emit(ctx.client.once(ctx.args.method, body, limit_s=RPC_S))
    except DaemonError as exc:
        if exc.code == ErrorCode.METHOD_NOT_FOUND:
            exc.hint = "`vastctl rpc rpc.discover` lists the methods of this vastd"
        raise
    return ExitCode.OK


def _stdin() -> bytes:
    """Return what stdin gives, if it is no more than a request may hold: it may never end."""
    body = sys.stdin.buffer.read(MAX_FRAME_BYTES + 1)
    if len(body) > MAX_FRAME_BYTES:
        raise UsageError(f"the parameters on stdin are longer than {MAX_FRAME_BYTES:,} bytes")
    return body


def _bridge(ctx: Context) -> int:
    if ctx.args.method is not None:
        raise UsageError("--stdio takes no method: the client on stdin says what to call")
    from vastctl.stdio_bridge import StdioBridge

    connected, path = open_socket(ctx.args.socket)
    with connected:
        if StdioBridge(0, 1, connected).run():
            return ExitCode.OK
    raise ConnectionLost(f"vastd at {path} closed the connection")
