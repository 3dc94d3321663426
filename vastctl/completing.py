"""What may come next on a command line: from the parsers themselves, names from the daemon.

Rules
1. Nothing is printed but candidates, and nothing is waited for: a daemon that does not answer at
   once has no names.
2. Names come from the daemon the line is for: `--socket` on it counts, as for the command.
3. A line that begins with `:` is for the shell's script: `:files` where file names fit.
"""

import os
from argparse import Action, ArgumentParser
from collections.abc import Callable, Sequence
from typing import Final

from vastctl import arguments
from vastctl.client import Client
from vastctl.commands import ALIASES, COMMANDS
from vastctl.errors import CliError
from vastctl.link import connect

NAMES_S: Final = 0.08  # guess; of 100 ms that a key press may take, what Python's start leaves
_FILES: Final = frozenset({"PATH", "SRC", "DST", "FILE"})
_VALUED: Final = ("--socket", "--timeout")
_GLOBAL: Final = ("--json", "--quiet", "--no-color", "--yes", "--socket", "--timeout", "--help")


def candidates(words: Sequence[str], at: int) -> list[str]:
    """Return what `words[at]`, as far as it is typed, may become. `words[0]` is the program."""
    typed = words[at] if at < len(words) else ""
    before = list(words[1:at])
    if "--" in before:
        return [":files"]  # the command for the machine
    socket = _socket(before)
    before, missing = _without_globals(before)
    if missing:
        return [":files"] if missing == "--socket" else []
    if not before:
        found = [*_GLOBAL] if typed.startswith("-") else [*COMMANDS, *ALIASES]
        return _starting(found, typed)
    name = ALIASES.get(before[0], before[0])
    if name == "help":
        return _starting([*COMMANDS, *ALIASES], typed)
    if name not in COMMANDS:
        return []
    command = arguments.load(name)
    actions = getattr(command, "ACTIONS", {})
    rest = before[1:]
    action = None
    if actions:
        rest, missing = _without_globals(rest)
        if missing:
            return [":files"] if missing == "--socket" else []
        if not rest:
            return _starting(actions, typed)
        action, rest = rest[0], rest[1:]
        if action not in actions:
            return []
    parser = arguments.make_parser(f"vastctl {name}", name, command, action)
    return _of_parser(parser, rest, typed, socket)


def _without_globals(words: list[str]) -> tuple[list[str], str]:
    """Return the words behind the global options, and the option whose value comes next."""
    while words and words[0].startswith("-"):
        option = words.pop(0)
        if option in _VALUED:
            if words[:1] == ["="]:
                words.pop(0)
            if not words:
                return [], option
            words.pop(0)
    return words, ""


def _socket(words: Sequence[str]) -> str | None:
    """Return the socket the line names, the last one if several; None for the usual one."""
    found = None
    for at, word in enumerate(words):
        option, equals, value = word.partition("=")
        if option != "--socket":
            continue
        if not equals:
            # bash hands `--socket=PATH` over as three words.
            behind = list(words[at + 1 : at + 3])
            value = next((w for w in behind if w != "="), "")
        found = value or found
    return None if found is None else os.path.expanduser(found)  # the shell has not, at this point


def _of_parser(
    parser: ArgumentParser, rest: Sequence[str], typed: str, socket: str | None
) -> list[str]:
    options = {name: act for act in parser._actions for name in act.option_strings}
    open_option: Action | None = None
    positional = 0
    for word in rest:
        if word.startswith("-") and word != "-":
            found = options.get(word.partition("=")[0])
            takes = found is not None and found.nargs != 0 and "=" not in word
            open_option = found if takes else None
        elif open_option is None:
            positional += 1
        elif open_option.nargs not in ("+", "*"):
            open_option = None
    if typed.startswith("-"):
        return _starting(sorted(options), typed)
    if open_option is not None:
        return _values(open_option, typed, socket)
    places = [act for act in parser._actions if not act.option_strings]
    if not places:
        return []
    repeats = places[-1].nargs in ("+", "*")
    if positional < len(places):
        return _values(places[positional], typed, socket)
    return _values(places[-1], typed, socket) if repeats else []


def _values(action: Action, typed: str, socket: str | None) -> list[str]:
    if action.choices is not None:
        return _starting([str(choice) for choice in action.choices], typed)
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    source = _NAMES.get(metavar)
    if source is not None:
        return _starting(source(socket), typed)
    return [":files"] if metavar.partition("[")[0] in _FILES else []


def _starting(words: Sequence[str] | dict[str, str], typed: str) -> list[str]:
    return [word for word in words if word.startswith(typed)]


def _client(socket: str | None) -> Client:
    return Client(lambda: connect(socket), timeout_s=NAMES_S)


def _rentals(client: Client) -> list[str]:
    from vastd_protocol.methods import rental

    return [r.name for r in client.call(rental.LIST, rental.RentalListParams()).rentals]


def _jobs(client: Client) -> list[str]:
    from vastd_protocol.methods import job

    found = client.call(job.LIST, job.JobListParams(all=True)).jobs
    return [name for j in reversed(found) for name in (j.job_id, j.name)]


def _settings(client: Client) -> list[str]:
    from vastd_protocol.methods import config

    found = client.call(config.GET, config.ConfigGetParams()).settings
    tables = dict.fromkeys(s.key.partition(".")[0] for s in found)
    return [*tables, *(s.key for s in found)]


def _quiet(names: Callable[[Client], list[str]]) -> Callable[[str | None], list[str]]:
    def asked(socket: str | None) -> list[str]:
        try:
            return list(dict.fromkeys(names(_client(socket))))
        except CliError:
            return []

    return asked


_NAMES: Final[dict[str, Callable[[str | None], list[str]]]] = {
    "RENTAL": _quiet(_rentals),
    "JOB": _quiet(_jobs),
    "KEY": _quiet(_settings),
}

BASH: Final = r"""# vastctl completion for bash. In ~/.bashrc:  source <(vastctl completion bash)
_vastctl() {
    local line
    COMPREPLY=()
    while IFS= read -r line; do
        if [ "$line" = ":files" ]; then
            compopt -o default 2>/dev/null
        else
            COMPREPLY+=("$line")
        fi
    done < <("${COMP_WORDS[0]}" _complete -- "$COMP_CWORD" "${COMP_WORDS[@]}" 2>/dev/null)
}
complete -F _vastctl vastctl
"""
