"""Declared outputs: where to look, what belongs to them, what they are called at home."""

import subprocess
from pathlib import Path

import pytest

from vastd.jobs.outputs import Outputs
from vastd.jobs.remote_files import shell_glob


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("results/", "project/results/a/b", True), ("results", "project/results", True),
        ("results", "project/results2/a", False), ("*.log", "project/a.log", True),
        ("*.log", "project/d/a.log", False), ("run*/out", "project/run1/out/x", True),
        ("**/*.json", "project/a.json", True), ("**/*.json", "project/a/b/c.json", True),
        ("a/**/z", "project/a/z", True), ("a/**/z", "project/b/z", False),
        ("*", "project/.hidden", False), (".h*", "project/.hidden", True),
        ("ckpt-[0-9]", "project/ckpt-7", True), ("ckpt-[^0-9]", "project/ckpt-7", False),
    ],
)  # fmt: skip
def test_a_pattern_means_what_it_means_in_a_shell(pattern: str, name: str, matches: bool) -> None:
    outputs = Outputs([pattern], None)

    assert outputs.wanted(name) is matches
    assert outputs.missing([name]) == ([] if matches else [pattern])


def test_the_jobs_log_belongs_to_it_and_satisfies_the_hope_for_logs() -> None:
    outputs = Outputs([], "j-1")

    assert outputs.wanted("logs/j-1.log")
    assert not outputs.wanted("logs/j-2.log")
    assert outputs.missing(["logs/j-1.log"]) == ["results/"]
    assert outputs.home_name("logs/j-1.log") == "logs/j-1.log"
    assert outputs.home_name("project/results/a") == "results/a"
    assert outputs.home_name("project/logs/j-1.log") == "logs/j-1.log.project"


@pytest.mark.parametrize(
    "hostile", ["$(touch x)", "`id`", "a;b", "a b", "'", '"', "\\", "[$(x)]", "-rf", "a\nb"]
)
def test_only_globs_are_special_in_the_shell(tmp_path: Path, hostile: str) -> None:
    (tmp_path / f"{hostile}1").touch()
    told = subprocess.run(
        ["/bin/sh", "-c", f"for f in {shell_glob(hostile + '*')}; do printf '%s|' \"$f\"; done"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert told.stdout == f"./{hostile}1|"
    assert [path.name for path in tmp_path.iterdir()] == [f"{hostile}1"]
