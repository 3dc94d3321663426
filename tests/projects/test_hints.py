"""What the state file remembers for a lost store: used as far as it can be meant, trusted for nothing."""

import json
from pathlib import Path
from typing import Any

import pytest

from vastd.projects import hints
from vastd.projects.entry import StateEntry
from vastd.projects.hints import Hint, as_json
from vastd.projects.state_file import NAME, StateFiles

LABEL = "lab/train vastd-own00001-r1"


def an_entry(**changes: Any) -> StateEntry:
    facts: dict[str, Any] = {
        "instance_id": 42, "offer_id": 7, "gpu_name": "RTX 4090", "num_gpus": 1, "dph": 360_000,
        "created_at": 1.8e9, "phase": "ready", "label": LABEL,
    }  # fmt: skip
    return StateEntry(**{**facts, **changes})


def test_a_hint_comes_back_from_the_state_directory_and_is_in_no_project(tmp_path: Path) -> None:
    project = tmp_path / "lab"
    project.mkdir()
    told = Hint(
        name="train", project=str(project), profile="arf", max_runtime_s=7200.0, budget_usd=2.5,
        outputs=("out/", "*.log"),
    )  # fmt: skip
    files = StateFiles(tmp_path)

    files.write([an_entry(project=project, hint=as_json(told))], 1.8e9)
    files.write([], 1.8e9)  # a daemon whose store is lost knows nothing, and keeps what is there

    assert hints.read(tmp_path) == {(42, LABEL): told}
    assert "vastd" not in json.loads((project / NAME).read_text())[0]


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "../x"}, {"name": "a\nb"}, {"name": 7}, {"project": "relative"},
        {"project": "/no/such/place"}, {"project": "/tmp\0"}, {"max_runtime_s": -1},
        {"max_runtime_s": 1e300}, {"max_runtime_s": True}, {"budget_usd": "much"},
        {"idle_s": float("1e12")}, {"outputs": "results"}, {"outputs": [7, "", None]},
        {"future": 1},
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_left_out_field_by_field(
    tmp_path: Path, wrong: dict[str, Any]
) -> None:
    entry = {"instance_id": 42, "label": LABEL, "vastd": {"profile": "aris", **wrong}}
    (tmp_path / NAME).write_text(json.dumps([entry, "x", {"instance_id": 1}, {"vastd": 3}]))

    assert hints.read(tmp_path) == {(42, LABEL): Hint(profile="aris")}


@pytest.mark.parametrize("text", [None, "", "{", "[" * 99_999, '{"a": 1}', "17"])
def test_a_file_that_cannot_be_read_gives_no_hints(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / NAME).write_text(text)

    assert hints.read(tmp_path) == {}
