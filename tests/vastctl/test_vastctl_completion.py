"""Completion: from the parsers, with live names, in a real bash; silent without a daemon."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vastctl import completing
from vastctl.arguments import load
from vastctl.client import Client
from vastctl.commands import COMMANDS
from vastctl.completing import candidates
from vastd_protocol.methods import job, rental


def after(*words: str) -> list[str]:
    """Complete the last of `words`."""
    return candidates(["vastctl", *words], len(words))


@pytest.fixture
def live(daemon: Any, make: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(completing, "_client", lambda _socket: Client(daemon.connect))
    rentals = [make.rental(name="lab"), make.rental(name="lab-2")]
    daemon.on(
        "rental.list",
        rental.RentalListView(rentals=rentals, inventory=rental.InventoryView(state="fresh")),
    )
    daemon.on("job.list", job.JobListView(jobs=[make.job()]))
    return daemon


def test_commands_actions_and_options_come_from_the_real_parsers() -> None:
    assert "run" in after("")
    assert set(after("r")) >= {"run", "rent", "rpc"}
    assert after("job", "ca") == ["cancel"]
    assert "--max-runtime" in after("run", "--m")
    assert after("run", "--profile", "") == ["aris", "arf"]
    assert "--json" in after("--j")
    assert after("no-such", "") == []
    assert after("job", "no-such", "") == []


def test_names_of_machines_and_jobs_are_asked_for_live(live: Any) -> None:
    assert after("show", "la") == ["lab", "lab-2"]
    assert after("--json", "destroy", "lab", "lab-") == ["lab-2"]
    assert after("run", "--on", "") == ["lab", "lab-2"]
    assert after("logs", "-f", "") == ["j-1", "lab"]
    assert after("config", "get", "defaults.m") == ["defaults.max_runtime_s"]


def test_files_are_for_the_shell_and_so_is_what_follows_the_dashes() -> None:
    assert after("run", "--", "python", "") == [":files"]
    assert after("run", "--output", "") == [":files"]
    assert after("--socket", "") == [":files"]
    assert after("run", "--hours", "") == []


def test_without_a_daemon_there_are_no_names_and_no_noise(
    live: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    live.absent = 9

    assert after("show", "") == []


@pytest.mark.parametrize(
    "words",
    [
        ("--socket", "/run/other", "show"),
        ("--socket", "=", "/run/other", "show"),  # as bash splits it
        ("--socket=/run/other", "show"),
        ("show", "--socket", "/run/other"),
        ("--socket", "/run/first", "job", "--socket", "/run/other", "show"),
    ],
)
def test_names_come_from_the_socket_the_line_names(
    live: Any, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    asked: list[str | None] = []

    def client(socket: str | None) -> Client:
        asked.append(socket)
        return Client(live.connect)

    monkeypatch.setattr(completing, "_client", client)

    assert after(*words, "lab") != []
    assert asked == ["/run/other"]


def test_that_socket_is_connected_to(live: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    asked: list[str | None] = []

    def connect(socket: str | None) -> Any:
        asked.append(socket)
        return live.connect()

    monkeypatch.setattr(completing, "connect", connect)

    assert after("--socket", "/run/other", "show", "la") == ["lab", "lab-2"]
    assert asked == ["/run/other"]


def test_every_command_can_be_completed(live: Any) -> None:
    for name in sorted(set(COMMANDS) - {"help"}):
        actions = [word for word in after(name, "") if not word.startswith(":")]
        first = [name, actions[0]] if getattr(load(name), "ACTIONS", {}) else [name]
        assert "--json" in after(*first, "--j"), name


def test_another_shell_is_refused_with_what_there_is(vastctl: Callable[..., Any]) -> None:
    ran = vastctl("completion", "zsh")

    assert ran.code == 2
    assert "vastctl completion bash" in ran.err


@pytest.mark.e2e
@pytest.mark.skipif(shutil.which("bash") is None, reason="the script is for bash")
def test_a_real_bash_completes_with_the_script(tmp_path: Path) -> None:
    (tmp_path / "vastctl").symlink_to(Path(sys.executable).with_name("vastctl"))
    script = """
        source <(vastctl completion bash) || exit 9
        complete -p vastctl
        COMP_WORDS=(vastctl job ca); COMP_CWORD=2; _vastctl; echo "${COMPREPLY[@]}"
        COMP_WORDS=(vastctl show ""); COMP_CWORD=2; _vastctl; echo "none: ${COMPREPLY[*]}"
    """
    environ = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "VASTD_SOCKET": str(tmp_path / "none"),
    }

    done = subprocess.run(
        ["bash", "--norc", "-c", script], env=environ, capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["complete -F _vastctl vastctl", "cancel", "none: "]
