"""`rpc`: any method, raw JSON in, raw JSON out."""

import sys
from argparse import ArgumentParser
from typing import Final

from msgspec import DecodeError
from msgspec.json import decode

from vastctl.context import Context
from vastctl.errors import UsageError
from vastd_protocol.errors import ExitCode

EXAMPLES: Final = """\
  vastctl rpc rental.list
  vastctl rpc rental.get '{"rental": "r-1"}'
  echo '{"limit": 5}' | vastctl rpc event.list -"""

RPC_S: Final = 3600.0  # guess; held requests such as job.wait are called by hand, too


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("method", metavar="METHOD", help="as listed by `vastctl rpc rpc.discover`")
    parser.add_argument(
        "params",
        metavar="JSON",
        nargs="?",
        default="{}",
        help="parameters; - reads them from stdin",
    )


def run(ctx: Context) -> int:
    text = sys.stdin.read() if ctx.args.params == "-" else ctx.args.params
    body = text.encode()
    try:
        value = decode(body)
    except DecodeError as exc:
        raise UsageError(f"the parameters are no JSON: {exc}") from None
    if value is not None and not isinstance(value, (dict, list)):
        raise UsageError("the parameters must be a JSON object", hint='as in \'{"rental": "r-1"}\'')
    # Sent once: whether a repeat is safe is known only to who wrote the parameters.
    ctx.emit(ctx.client.once(ctx.args.method, body, limit_s=RPC_S))
    return ExitCode.OK
