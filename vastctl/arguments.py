"""The command line: which command is meant, and a parser for that one command only.

Rules
1. Global options are accepted before and after the command's name.
2. Everything behind `--` belongs to the command of `run` and `exec`, untouched.
3. Every mistake is a `UsageError` with a remedy; nothing is guessed.
"""

import argparse
import os
from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Final, NoReturn, Protocol, cast

from vastctl import values
from vastctl.commands import ALIASES, COMMANDS, GROUPS
from vastctl.errors import UsageError

if TYPE_CHECKING:
    from vastctl.context import Context

_FLAGS: Final = {
    "--json": "json",
    "--quiet": "quiet",
    "-q": "quiet",
    "--no-color": "no_color",
    "-y": "yes",
    "--yes": "yes",
    "-h": "help",
    "--help": "help",
    "--version": "version",
}
_VALUED: Final = {"--socket": "socket", "--timeout": "timeout"}
_MAX_SUGGESTIONS: Final = 3


class _Formatter(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        # The base class would import shutil to learn the width, with every option that is added.
        super().__init__(prog, width=_columns() - 2)

    def _split_lines(self, text: str, width: int) -> list[str]:
        # As the base class, but a name such as `offer-gone` is not broken: it is to be copied.
        from textwrap import wrap

        return wrap(" ".join(text.split()), width, break_on_hyphens=False)


def _columns() -> int:
    said = os.environ.get("COLUMNS", "")
    if said.isascii() and said.isdigit():
        return max(40, int(said))
    try:
        return max(40, os.get_terminal_size(1).columns)
    except (OSError, ValueError):
        return 80


class Command(Protocol):
    """What a module in `commands/` offers. `ACTIONS` and `TAKES_COMMAND` may be missing."""

    EXAMPLES: str
    ACTIONS: Mapping[str, str]  # second word -> help
    TAKES_COMMAND: bool  # what follows `--` is a command for the machine

    def arguments(self, parser: ArgumentParser) -> None:
        """Add the command's own options."""

    def run(self, ctx: "Context") -> int:
        """Do it and return the exit code."""


class Parsed:
    """A command line that was understood."""

    def __init__(self, name: str, command: Command | None, args: Namespace, help_text: str) -> None:
        self.name = name
        self.command = command  # None: print `help_text`
        self.args = args
        self.help_text = help_text


class _Parser(ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message, hint=f"see `{self.prog} --help`")


def parse(argv: Sequence[str]) -> Parsed:
    """Return the command that `argv` (without the program's name) means.

    Raises:
        UsageError: it means none.
    """
    args = Namespace(
        json=False, quiet=False, no_color=False, yes=False, help=False, version=False,
        socket=None, timeout=None, action=None, remote=None,
    )  # fmt: skip
    rest = _globals(list(argv), args)
    if args.version:
        return Parsed("version", load("version"), args, "")
    if not rest:
        return Parsed("", None, args, overview())
    typed = rest.pop(0)
    name = ALIASES.get(typed, typed)
    if name not in COMMANDS:
        raise UsageError(
            f"there is no command {typed!r}",
            hint=did_you_mean(typed, [*COMMANDS, *ALIASES], "see `vastctl help`"),
        )
    if name == "help":
        return Parsed("", None, args, help_for(rest))
    command = load(name)
    return _parse_command(name, command, rest, args)


def load(name: str) -> Command:
    """Import the module of a command."""
    module = import_module(f"vastctl.commands.{COMMANDS[name][0]}")
    return cast("Command", module)  # modules are checked against the protocol by a test


def _parse_command(name: str, command: Command, rest: list[str], args: Namespace) -> Parsed:
    mine, dashes, remote = _split(rest)
    takes_command: bool = getattr(command, "TAKES_COMMAND", False)
    if dashes and not takes_command:
        mine += ["--", *remote]
    args.command = name
    args.remote = remote if takes_command else None
    if {"-h", "--help"} & set(mine) or args.help:
        return Parsed(name, None, args, help_for([name]))
    actions: Mapping[str, str] = getattr(command, "ACTIONS", {})
    prog = f"vastctl {name}"
    if actions:
        mine = _globals(mine, args)
        args.action = _action(name, actions, mine)
        prog += f" {args.action}"
    parser = make_parser(prog, name, command, args.action)
    _, unknown = parser.parse_known_args(mine, args)
    if unknown:
        raise _unknown(prog, parser, unknown, takes_command)
    return Parsed(name, command, args, "")


def _split(rest: list[str]) -> tuple[list[str], bool, list[str]]:
    if "--" not in rest:
        return rest, False, []
    at = rest.index("--")
    return rest[:at], True, rest[at + 1 :]


def _globals(tokens: list[str], args: Namespace) -> list[str]:
    """Take the global options in front of the first other word; return the rest."""
    while tokens and tokens[0].startswith("-") and tokens[0] not in ("-", "--"):
        option, equals, value = tokens[0].partition("=")
        if option in _FLAGS and not equals:
            setattr(args, _FLAGS[option], True)
            tokens = tokens[1:]
        elif option in _VALUED:
            if not equals:
                if len(tokens) < 2:
                    raise UsageError(f"{option} needs a value")
                value = tokens[1]
            tokens = tokens[1 if equals else 2 :]
            setattr(args, _VALUED[option], _global_value(option, value))
        else:
            raise UsageError(
                f"there is no option {option!r} before a command",
                hint=did_you_mean(
                    option, [*_FLAGS, *_VALUED], "options of a command go behind its name"
                ),
            )
    return tokens


def _global_value(option: str, text: str) -> float | str:
    try:
        return values.seconds(text) if option == "--timeout" else values.path(text)
    except argparse.ArgumentTypeError as exc:
        raise UsageError(f"{option}: {exc}") from None


def _action(name: str, actions: Mapping[str, str], mine: list[str]) -> str:
    listed = ", ".join(actions)
    if not mine:
        raise UsageError(f"`vastctl {name}` needs one of: {listed}")
    typed = mine.pop(0)
    if typed not in actions:
        raise UsageError(
            f"there is no `vastctl {name} {typed}`",
            hint=did_you_mean(typed, actions, f"it is one of: {listed}"),
        )
    return typed


def make_parser(prog: str, name: str, command: Command, action: str | None) -> ArgumentParser:
    """Return the parser of one command. `action` is its second word, where it has one."""
    parser = _Parser(
        prog=prog,
        description=_sentence(name),
        epilog=f"examples:\n{command.EXAMPLES}" if command.EXAMPLES else None,
        formatter_class=_Formatter,
        allow_abbrev=False,
        add_help=False,
    )
    parser.set_defaults(action=action)
    command.arguments(parser)
    shared = parser.add_argument_group("options of every command")
    flags: tuple[tuple[tuple[str, ...], str], ...] = (
        (("--json",), "print the result as JSON, unchanged"),
        (("-q", "--quiet"), "no notes and no progress"),
        (("--no-color",), "no colour; NO_COLOR does the same"),
        (("-y", "--yes"), "do not ask"),
    )
    for names, text in flags:
        shared.add_argument(*names, action="store_true", default=SUPPRESS, help=text)
    shared.add_argument(
        "--socket", metavar="PATH", type=values.path, default=SUPPRESS, help="where vastd listens"
    )
    shared.add_argument(
        "--timeout", metavar="S", type=values.seconds, default=SUPPRESS, help="wait at most so long"
    )
    shared.add_argument("-h", "--help", action="store_true", default=SUPPRESS, help="print this")
    if getattr(command, "TAKES_COMMAND", False):
        parser.usage = parser.format_usage().removeprefix("usage: ").rstrip() + " -- COMMAND ..."
    return parser


def _unknown(
    prog: str, parser: ArgumentParser, unknown: list[str], takes_command: bool
) -> UsageError:
    option = next((word for word in unknown if word.startswith("-")), None)
    if option is not None:
        option = option.partition("=")[0]
        known = [name for act in parser._actions for name in act.option_strings]
        return UsageError(
            f"there is no option {option!r}",
            hint=did_you_mean(option, known, f"see `{prog} --help`"),
        )
    hint = f"see `{prog} --help`"
    if takes_command:
        hint = f"put the command behind `--`: `{prog} … -- {' '.join(unknown)[:60]}`"
    return UsageError(f"{unknown[0]!r} is one argument too many", hint=hint)


def did_you_mean(typed: str, known: Iterable[str], otherwise: str) -> str:
    """Return a hint with up to three similar words."""
    from difflib import get_close_matches

    # Dashes are no likeness: every option has them.
    bare = {word.lstrip("-") or word: word for word in known}
    asked = typed.lstrip("-") or typed
    close = [bare[word] for word in get_close_matches(asked, bare, n=_MAX_SUGGESTIONS, cutoff=0.6)]
    if not close:
        return otherwise
    return "did you mean " + " or ".join(f"`{word}`" for word in close) + "?"


def overview() -> str:
    """Return the help of `vastctl` alone: every command, by purpose."""
    rows = ["usage: vastctl [options] COMMAND …", ""]
    rows += ["Rent GPUs on Vast.ai, run jobs on them, and be sure that they end.", ""]
    for title, names in GROUPS:
        rows.append(f"{title}:")
        rows += [f"  {name:<12} {COMMANDS[name][1]}" for name in names]
        rows.append("")
    rows += [
        "A first run:",
        "  vastctl demo",
        "  vastctl run --hours 1 --gpu-ram 24 --budget 2 --output results -- python train.py",
        "",
        "`vastctl COMMAND --help` tells the options of a command.",
    ]
    return "\n".join(rows)


def _sentence(name: str) -> str:
    text = COMMANDS[name][1]
    return f"{text[0].upper()}{text[1:]}."  # `capitalize` would make `Vast` and `SSH` small


def help_for(words: Sequence[str]) -> str:
    """Return the help of the command named by `words`, the overview if there is none.

    Raises:
        UsageError: there is no such command, or a word too many.
    """
    names = [word for word in words if word not in ("-h", "--help")]
    if not names:
        return overview()
    name = ALIASES.get(names[0], names[0])
    if name not in COMMANDS:
        raise UsageError(
            f"there is no command {names[0]!r}",
            hint=did_you_mean(names[0], [*COMMANDS, *ALIASES], "see `vastctl help`"),
        )
    if name == "help":
        return overview()
    command = load(name)
    actions: Mapping[str, str] = getattr(command, "ACTIONS", {})
    extra = names[2 if names[1:2] and names[1] in actions else 1 :]
    if extra:
        raise UsageError(
            f"{extra[0]!r} is one argument too many",
            hint=did_you_mean(extra[0], actions, f"see `vastctl help {name}`"),
        )
    if not actions:
        return make_parser(f"vastctl {name}", name, command, None).format_help().rstrip()
    wanted = names[1:2] or list(actions)
    parts = [_sentence(name)]
    for action in wanted:
        text = make_parser(f"vastctl {name} {action}", name, command, action).format_usage()
        parts.append(f"{text.rstrip()}\n    {actions[action]}")
    if command.EXAMPLES:
        parts.append(f"examples:\n{command.EXAMPLES}")
    return "\n\n".join(parts)
