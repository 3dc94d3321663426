"""Which command is meant: options anywhere, mistakes with a remedy, help for everything."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vastctl.arguments import did_you_mean, help_for, load, overview, parse
from vastctl.commands import ALIASES, COMMANDS, GROUPS
from vastctl.errors import UsageError
from vastctl.simulated import FAULTS


def test_global_options_are_accepted_before_and_after_the_command() -> None:
    for words in (
        ["--json", "--socket", "/s", "--timeout=9", "-q", "ls", "--all"],
        ["ls", "--all", "--json", "--socket=/s", "--timeout", "9s", "--quiet"],
        ["--json", "-q", "list", "--all", "--socket", "/s", "--timeout", "9"],
    ):
        args = parse(words).args
        assert (args.json, args.quiet, args.socket, args.timeout) == (True, True, "/s", 9.0)
        assert args.all


def test_global_options_stand_between_the_two_words_of_a_command_as_well() -> None:
    args = parse(["daemon", "--socket", "/s", "start", "--simulate", "-y"]).args

    assert (args.action, args.socket, args.simulate, args.yes) == ("start", "/s", True, True)


def test_what_follows_the_dashes_belongs_to_the_remote_command() -> None:
    parsed = parse(["run", "--hours", "1", "--", "prog", "--json", "--", "-h", "--help"])

    assert parsed.args.remote == ["prog", "--json", "--", "-h", "--help"]
    assert not parsed.args.json


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["lis"], "`list`"),
        (["destory"], "did you mean `destroy`"),
        (["rn", "--", "x"], "`run`"),
        (["run", "--gpu-rm", "24", "--", "x"], "`--gpu-ram`"),
        (["run", "--max-runtme=2h", "--", "x"], "did you mean `--max-runtime`"),
        (["--jsn", "ls"], "`--json`"),
        (["job", "cancle"], "`cancel`"),
        (["daemon", "strat"], "`start`"),
        (["help", "explian"], "`explain`"),
        (["ls", "--al"], "`--all`"),
    ],
)
def test_a_misspelt_word_gets_a_suggestion(words: list[str], hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(words)

    assert hint in caught.value.hint
    assert caught.value.hint.count("`") <= 6  # at most three words
    assert caught.value.exit_code == 2


def test_a_command_without_dashes_is_told_where_they_go() -> None:
    with pytest.raises(UsageError) as caught:
        parse(["run", "--hours", "1", "python", "train.py"])

    assert "-- python train.py" in caught.value.hint


@pytest.mark.parametrize(
    "words",
    [
        ["run", "--hours", "nan", "--", "x"],
        ["run", "--budget", "-1", "--", "x"],
        ["run", "--max-runtime", "2 hours", "--", "x"],
        ["run", "--image", "a b", "--", "x"],
        ["run", "--env", "1=2", "--", "x"],
        ["run", "--name", "Über", "--", "x"],
        ["--timeout", "0", "ls"],
        ["ls", "--timeout", "soon"],
        ["ls", "--socket"],
        ["logs", "-n", "0"],
        ["rent", "abc"],
        ["ls", "surplus"],
        ["job"],
        ["rent"],
        ["events", "--after", "-4"],
    ],
)
def test_bad_values_are_usage_errors(words: list[str]) -> None:
    with pytest.raises(UsageError):
        parse(words)


def test_the_options_of_run_arrive_typed() -> None:
    args = parse(
        [
            "run",
            "--name",
            "lab",
            "--hours",
            "1.5",
            "--gpu-ram",
            "24",
            "--num-gpus",
            "2",
            "--budget",
            "2",
            "--max-runtime",
            "2h",
            "--heartbeat",
            "hb.json:60s",
            "--output",
            "results",
            "logs",
            "--output",
            "extra",
            "--env",
            "A=1",
            "--env",
            "B=2",
            "--spot",
            "0.2",
            "--keep",
            "--",
            "python",
            "train.py",
        ]
    ).args

    assert (args.hours, args.gpu_ram, args.num_gpus, args.budget) == (1.5, 24.0, 2, 2.0)
    assert (args.max_runtime, args.heartbeat) == (7200.0, ("hb.json", 60.0))
    assert args.output == ["results", "logs", "extra"]
    assert args.env == [("A", "1"), ("B", "2")]
    assert args.spot == 0.2
    assert args.keep


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - {"help"}))
def test_every_command_keeps_the_protocol_and_has_help_with_examples(name: str) -> None:
    command = load(name)

    text = help_for([name])

    assert callable(command.run)
    assert "vastctl" in text
    assert name == "version" or "examples:" in text


def test_every_command_has_one_place_in_the_overview_and_a_module() -> None:
    grouped = [name for _, names in GROUPS for name in names]
    folder = Path(load("ls").__file__).parent  # type: ignore[attr-defined]

    assert sorted(grouped) == sorted(COMMANDS)
    assert all(name in overview() for name in COMMANDS)
    assert set(ALIASES.values()) <= set(COMMANDS)
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    assert modules == {module for module, _ in COMMANDS.values()} - {"help"}


def test_help_goes_to_stdout_and_ends_well(vastctl: Callable[..., Any]) -> None:
    for words in ([], ["help"], ["--help"], ["-h"]):
        ran = vastctl(*words)
        assert (ran.code, ran.err) == (0, "")
        assert ran.out == overview() + "\n"
    for words in (
        ["run", "--help"],
        ["help", "run"],
        ["run", "-h", "--hours", "1"],
        ["--help", "run"],
    ):
        ran = vastctl(*words)
        assert (ran.code, ran.err) == (0, "")
        assert ran.out.startswith("usage: vastctl run")
    assert "--simulate" in vastctl("daemon", "start", "--help").out


def test_help_in_a_remote_command_is_not_ours(vastctl: Callable[..., Any], daemon: Any) -> None:
    ran = vastctl("run", "--", "prog", "--help")

    assert ran.code == 2  # it asks for a confirmation: it was understood as a run
    assert "spends money" in ran.err
    assert daemon.requests == []


def test_a_suggestion_is_close_and_the_closest_comes_first() -> None:
    assert did_you_mean("--budgt", ["--name", "--budget", "--image"], "-") == (
        "did you mean `--budget`?"
    )
    close = did_you_mean("--outpt", ["--input", "--output"], "-")
    assert close.startswith("did you mean `--output`")
    assert did_you_mean("--zzz", ["--name", "--json"], "see help") == "see help"


@pytest.mark.parametrize("words", [["run", "-x"], ["run", "x"], ["job", "x"], ["job", "show", "x"]])
def test_help_refuses_what_it_does_not_know(words: list[str]) -> None:
    with pytest.raises(UsageError, match="one argument too many"):
        help_for(words)


def test_help_leaves_names_as_they_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")

    assert "own OpenSSH." in help_for(["exec"])
    assert "simulated Vast," in help_for(["demo"])
    for name in FAULTS:
        assert name in help_for(["demo"])  # not broken at a hyphen
    assert "hours it would take on one RTX 3090" in " ".join(help_for(["run"]).split())


def test_destroy_all_describes_itself() -> None:
    text = help_for(["destroy-all"])

    assert "Collect and destroy every machine" in text
    assert "RENTAL" not in text
    with pytest.raises(UsageError):
        parse(["destroy-all", "r-1"])
