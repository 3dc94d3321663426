"""The entry point: parse, run one command, and turn whatever happens into a message and a code."""

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, TextIO

from vastctl.arguments import Parsed, parse
from vastctl.client import Client
from vastctl.context import Context
from vastctl.entry import INTERRUPTED, run
from vastctl.errors import CliError, UsageError
from vastctl.greeting import Greeting
from vastctl.link import Link, connect
from vastctl.screen import Screen
from vastd_protocol.errors import ExitCode

PIPE_CLOSED: Final = 141  # 128 + SIGPIPE, as shells count
# Inside these the codes below 125 are those of the remote command (CONTRACT 2).
_REMOTE_CODE: Final = frozenset({"exec", "job wait"})


def main(
    argv: Sequence[str] | None = None,
    *,
    link: Callable[[], Link] | None = None,
    out: TextIO | None = None,
    err: TextIO | None = None,
    project: str | None = None,
    now: Callable[[], float] | None = None,
    stdin_tty: bool | None = None,
) -> int:
    """Run one command line and return its exit code. The keywords replace the world in tests."""
    out, err = out or sys.stdout, err or sys.stderr
    words = sys.argv[1:] if argv is None else list(argv)
    if words[:1] == ["_complete"]:
        with suppress(OSError):  # a shell that asks is not told of trouble
            return _complete(words[2:], out)
        return ExitCode.FAILED
    _tolerate(out, err)
    own = words[: words.index("--")] if "--" in words else words
    screen = Screen(out, err, colour="--no-color" not in own)
    as_json = "--json" in own
    parsed: Parsed | None = None
    try:
        parsed = parse(words)
        code = _run(parsed, out, err, link, project, now, stdin_tty)
        screen.flush()
    except CliError as exc:
        return _fail(exc, parsed, screen, as_json)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return _pipe_closed(out)
    except OSError as exc:
        return _fail(_system(exc), parsed, screen, as_json)
    except UnicodeEncodeError:
        return _fail(_not_text(), parsed, screen, as_json)
    except Exception as exc:  # noqa: BLE001  # the one edge: a bug is told, never a traceback
        return _fail(_bug(exc), parsed, screen, as_json)
    return code


def _run(
    parsed: Parsed,
    out: TextIO,
    err: TextIO,
    link: Callable[[], Link] | None,
    project: str | None,
    now: Callable[[], float] | None,
    stdin_tty: bool | None,
) -> int:
    args = parsed.args
    screen = Screen(out, err, colour=not args.no_color, quiet=args.quiet)
    if parsed.command is None:
        if args.json:
            # Whoever asks for JSON reads one document, whatever he asked for.
            from msgspec.json import encode

            screen.raw(encode({"help": parsed.help_text}))
        else:
            screen.out(parsed.help_text)
        return ExitCode.OK
    greeting = Greeting(screen.note, lambda text: screen.step("warning", text))
    client = Client(
        link or (lambda: connect(args.socket)),
        timeout_s=args.timeout,
        note=screen.note,
        greeting=greeting,
    )
    ctx = Context(args, screen, client, project=project, stdin_tty=stdin_tty)
    clock = now or ctx.now
    # What vastd tells is compared with the clock it is told by, also after somebody set ours.
    ctx.now = lambda: clock() - greeting.clock_ahead_s
    try:
        return int(parsed.command.run(ctx))
    finally:
        client.close()


def _complete(words: Sequence[str], out: TextIO) -> int:
    """Answer the shell's script (`vastctl completion`); whatever is odd has no candidates."""
    from vastctl.completing import candidates

    if words and words[0].isdigit():
        out.writelines(f"{found}\n" for found in candidates(words[1:], int(words[0])))
    return ExitCode.OK


def _tolerate(out: TextIO, err: TextIO) -> None:
    """Write characters the terminal lacks as `?`: a name must not end a command."""
    for stream in (out, err):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")


def _fail(exc: CliError, parsed: Parsed | None, screen: Screen, as_json: bool) -> int:
    with suppress(OSError, CliError):  # the error is what counts
        screen.flush()
    try:
        if as_json:
            screen.json_error(exc.as_json())
        else:
            screen.error(str(exc), exc.hint)
    except BrokenPipeError:
        pass  # nobody listens; the code still tells
    return _exit_code(exc, parsed)


def _exit_code(exc: CliError, parsed: Parsed | None) -> int:
    if parsed is None or exc.exit_code in (ExitCode.USAGE, ExitCode.TIMED_OUT):
        return exc.exit_code
    action = getattr(parsed.args, "action", None)
    name = f"{parsed.name} {action}" if action else parsed.name
    if name in _REMOTE_CODE or (name == "logs" and parsed.args.exit_status):
        return ExitCode.TOOL_FAILED
    return exc.exit_code


def _system(exc: OSError) -> CliError:
    """Return what the computer refused, in words: it is no bug, and has no one remedy."""
    what = f" {os.fsdecode(exc.filename)!r}" if isinstance(exc.filename, str | bytes) else ""
    return CliError(f"this computer refused{what}: {exc.strerror or exc}")


def _not_text() -> CliError:
    return UsageError(
        "an argument or name is not UTF-8 text, and vastd takes only that",
        hint="rename the file, or correct the argument",
    )


def _bug(exc: Exception) -> CliError:
    import traceback

    where = traceback.extract_tb(exc.__traceback__)[-1]
    return CliError(
        f"vastctl has a bug: {type(exc).__name__}: {exc} "
        f"({os.path.basename(where.filename)}, line {where.lineno})",
        hint="please report it; your machines and jobs are with vastd and not affected",
    )


def _pipe_closed(out: TextIO) -> int:
    # The interpreter flushes stdout once more at its end, which would complain a second time.
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())
    return PIPE_CLOSED


if __name__ == "__main__":
    sys.exit(run())
