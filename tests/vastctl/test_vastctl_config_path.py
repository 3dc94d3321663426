"""`config path` names the project's own file too, without asking vastd."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.json import decode

from vastctl.commands.config import _project_files

OURS = "[tool.vastd.needs]\ngpu_ram_gb = 24\n"


@pytest.mark.parametrize(
    ("files", "named"),
    [
        ({}, []),
        ({"vastd.toml": ""}, ["vastd.toml"]),
        ({"pyproject.toml": OURS}, ["pyproject.toml"]),
        ({"pyproject.toml": "[tool.ruff]\n# tool.vastd\n"}, []),
        ({"pyproject.toml": "[tool\n"}, []),
        ({"pyproject.toml": "tool = 1\n"}, []),
        ({"vastd.toml": "", "pyproject.toml": OURS}, ["vastd.toml", "pyproject.toml"]),
    ],
)
def test_the_file_in_which_a_project_speaks_is_found(
    tmp_path: Path, files: dict[str, str], named: list[str]
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)

    assert _project_files(str(tmp_path)) == [str(tmp_path / name) for name in named]


@pytest.mark.parametrize("count", [0, 1, 2])
def test_stdout_is_the_users_own_file_and_the_projects_is_a_note(
    vastctl: Callable[..., Any], daemon: Any, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    found = ["/home/me/lab/vastd.toml", "/home/me/lab/pyproject.toml"][:count]
    monkeypatch.setenv("VASTD_CONFIG", "/etc/v.toml")
    monkeypatch.setattr("vastctl.commands.config._project_files", lambda _project: found)

    ran = vastctl("config", "path")

    assert ran.out == f"/etc/v.toml{os.linesep}"
    assert all(path in ran.err for path in found)
    assert ("keep one of them" in ran.err) is (count == 2)
    told = decode(vastctl("config", "path", "--json").out)
    assert told == {"path": "/etc/v.toml", "project_path": found[0] if count == 1 else None}
    assert daemon.requests == []
