"""The state file as a whole: other writers' entries, damage, retention, power cuts."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.permissions import as_ordinary_user
from vastd.core.money import Micros
from vastd.projects.entry import EXTRA_KEYS, REQUIRED_KEYS, StateEntry, to_json
from vastd.projects.state_file import NAME, StateFiles, Warned, merge, render

NOW = 1_794_470_745.0
DAY_S = 86_400


def an_entry(instance_id: int = 1, *, project: Path | None = None, **changes: object) -> StateEntry:
    values: dict[str, object] = {
        "instance_id": instance_id,
        "offer_id": 7,
        "gpu_name": "RTX 4090",
        "num_gpus": 1,
        "dph": Micros(312_000),
        "created_at": NOW,
        "phase": "ready",
        "provider_status": "running",
        "project": project,
        "estimated_hours": 3.0,
    }
    return StateEntry(**{**values, **changes})


def an_ended(instance_id: int, ended_at: float, **changes: object) -> StateEntry:
    return an_entry(instance_id, phase="gone", ended_at=ended_at, **changes)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    path = tmp_path / "state"
    path.mkdir()
    return path


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    return path


def entries_in(directory: Path) -> list[dict[str, object]]:
    return json.loads((directory / NAME).read_bytes())


def ids_in(directory: Path) -> list[object]:
    return [entry["instance_id"] for entry in entries_in(directory)]


@pytest.mark.req("REC-01")
def test_every_rental_is_in_the_state_directory_and_in_its_own_project(
    state: Path, project: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    rentals = [an_entry(1, project=project), an_entry(2, project=other), an_entry(3)]

    assert StateFiles(state).write(rentals, NOW) == []

    assert ids_in(state) == [1, 2, 3]
    assert entries_in(project) == [to_json(rentals[0])]
    assert ids_in(other) == [2]


def test_without_rentals_the_state_directory_has_an_empty_list_and_projects_nothing(
    state: Path, project: Path
) -> None:
    StateFiles(state).write([an_ended(1, NOW - 8 * DAY_S, project=project)], NOW)

    assert entries_in(state) == []
    assert list(project.iterdir()) == []


@pytest.mark.req("DES-06")
def test_an_ended_machine_stays_for_seven_days_and_then_leaves_every_file(
    state: Path, project: Path
) -> None:
    target = StateFiles(state)
    rentals = [an_ended(1, NOW, project=project), an_entry(2, project=project)]
    target.write(rentals, NOW)
    assert [entry["status"] for entry in entries_in(project)] == ["destroyed", "running"]

    target.write(rentals, NOW + 7 * DAY_S + 1)

    assert ids_in(project) == ids_in(state) == [2]


@pytest.mark.req("DES-06")
def test_what_shall_be_forgotten_leaves_at_once_but_never_a_machine_that_may_exist(
    state: Path, project: Path
) -> None:
    rentals = [an_ended(1, NOW, project=project), an_entry(2, project=project)]
    StateFiles(state).write(rentals, NOW)

    StateFiles(state).write(rentals, NOW, forget=[1, 2])

    assert ids_in(project) == ids_in(state) == [2]


@pytest.mark.req("REC-08")
def test_entries_of_other_writers_and_unknown_keys_of_ours_stay(state: Path, project: Path) -> None:
    foreign = {"instance_id": 99, "status": "running", "mine": [1.5, None]}
    (project / NAME).write_text(
        json.dumps(
            [
                foreign,
                {"instance_id": "1", "status": "loading", "note": "do not touch", "image": "old"},
                "a stray text",
                {"no": "id"},
                {"instance_id": 1, "again": True},
            ]
        )
    )

    StateFiles(state).write([an_entry(2, project=project), an_entry(1, project=project)], NOW)

    assert entries_in(project) == [
        foreign,
        {**to_json(an_entry(1)), "note": "do not touch"},
        "a stray text",
        {"no": "id"},
        to_json(an_entry(2)),
    ]


@pytest.mark.parametrize(
    "damage", [b"", b"[{]", b"{}", b"null", b"[NaN]", b"\xff\xfe", b"[" * 100_000, b"[1e999]"]
)
def test_a_file_that_does_not_parse_is_moved_aside(
    state: Path, project: Path, damage: bytes
) -> None:
    (project / NAME).write_bytes(damage)

    warnings = StateFiles(state).write([an_entry(1, project=project)], NOW)

    aside = project / f"{NAME}.broken-20261112T080545Z"
    assert aside.read_bytes() == damage
    assert ids_in(project) == [1]
    assert [(w.path, aside.name in w.message) for w in warnings] == [(project / NAME, True)]


def test_a_second_damaged_file_does_not_replace_the_first(state: Path, project: Path) -> None:
    for damage in (b"one", b"two"):
        (project / NAME).write_bytes(damage)
        StateFiles(state).write([an_entry(1, project=project)], NOW)

    kept = sorted(p.read_bytes() for p in project.glob("*.broken-*"))
    assert kept == [b"one", b"two"]


@pytest.mark.parametrize("kind", ["pipe", "directory", "dangling", "device"])
def test_what_is_not_a_file_is_moved_aside(state: Path, project: Path, kind: str) -> None:
    path = project / NAME
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "directory":
            path.mkdir()
        case "dangling":
            path.symlink_to("nowhere")
        case _:
            path.symlink_to("/dev/zero")

    warnings = StateFiles(state).write([an_entry(1, project=project)], NOW)

    assert ids_in(project) == [1]
    assert len(warnings) == len(list(project.glob("*.broken-*"))) == 1


def test_a_link_in_a_project_is_replaced_and_its_target_left_alone(
    state: Path, project: Path, tmp_path: Path
) -> None:
    target = tmp_path / "target.json"
    target.write_text("[]")
    (project / NAME).symlink_to(target)

    assert StateFiles(state).write([an_entry(1, project=project)], NOW) == []

    assert target.read_text() == "[]"
    assert ids_in(project) == [1]
    assert not (project / NAME).is_symlink()


def test_a_project_that_cannot_be_written_costs_a_warning_and_nothing_else(
    state: Path, project: Path, tmp_path: Path
) -> None:
    gone = tmp_path / "gone"
    rentals = [an_entry(1, project=gone), an_entry(2, project=project)]

    warnings = StateFiles(state).write(rentals, NOW)

    message = "the state file cannot be written: No such file or directory"
    assert warnings == [Warned(path=gone / NAME, message=message)]
    assert ids_in(state) == [1, 2]
    assert ids_in(project) == [2]
    assert not gone.exists()


def test_a_directory_without_permission_costs_a_warning(state: Path, project: Path) -> None:
    StateFiles(state).write([an_entry(1, project=project)], NOW)
    for directory in (state, project):
        directory.chmod(0o500)

    with as_ordinary_user():
        warnings = StateFiles(state).write([an_entry(2, project=project)], NOW)

    assert ["Permission denied" in w.message for w in warnings] == [True, True]
    assert ids_in(state) == [1]


def test_a_file_that_would_not_change_is_not_written(state: Path, project: Path) -> None:
    target = StateFiles(state)
    target.write([an_entry(1, project=project)], NOW)
    before = (project / NAME).stat().st_ino

    target.write([an_entry(1, project=project)], NOW + 5)
    assert (project / NAME).stat().st_ino == before

    target.write([an_entry(1, project=project, phase="destroying")], NOW + 9)
    assert (project / NAME).stat().st_ino != before


def test_permissions_of_the_file_stay(state: Path) -> None:
    (state / NAME).write_text("[]")
    (state / NAME).chmod(0o640)

    StateFiles(state).write([an_entry(1)], NOW)

    assert stat.S_IMODE((state / NAME).stat().st_mode) == 0o640


@pytest.mark.parametrize("point", ["rename", "fsync", "write"])
@pytest.mark.req("REC-08")
def test_a_kill_during_the_write_leaves_the_old_file(state: Path, point: str) -> None:
    """The process is killed in the middle of a real write, at each of its steps."""
    StateFiles(state).write([an_entry(1)], NOW)
    before = (state / NAME).read_bytes()
    name = {"rename": "os.replace", "fsync": "os.fsync", "write": "os.fchmod"}[point]
    program = (
        "import os, pathlib, sys; from vastd import files\n"
        f"{name} = lambda *a, **k: os.kill(os.getpid(), 9)\n"
        "files.write_atomic(pathlib.Path(sys.argv[1]), b'[]')"
    )

    done = subprocess.run([sys.executable, "-c", program, state / NAME], check=False, timeout=20)

    assert done.returncode == -9
    assert (state / NAME).read_bytes() == before
    assert len(list(state.glob(f".{NAME}.*.tmp"))) == 1


def test_a_failed_rename_leaves_the_old_file_and_no_temporary_one(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    StateFiles(state).write([an_entry(1)], NOW)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    warnings = StateFiles(state).write([an_entry(2)], NOW)

    assert [w.message for w in warnings] == [
        "the state file cannot be written: No space left on device"
    ]
    assert [p.name for p in state.iterdir()] == [NAME]
    assert ids_in(state) == [1]


_KEYS = st.text(max_size=6).filter(lambda key: key not in REQUIRED_KEYS + EXTRA_KEYS)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**80), 2**80) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)  # fmt: skip
_ITEMS = st.lists(
    _JSON
    | st.builds(
        lambda instance_id, rest: {"instance_id": instance_id, **rest},
        st.integers(1, 9) | st.integers(1, 9).map(str),
        st.dictionaries(_KEYS, _JSON, max_size=2),
    ),
    max_size=5,
)
_OURS = st.lists(
    st.integers(1, 9).flatmap(
        lambda i: st.sampled_from([an_entry(i), an_ended(i, NOW - DAY_S), an_ended(i, 0.0)])
    ),
    unique_by=lambda entry: entry.instance_id,
    max_size=4,
)


@given(_ITEMS, _OURS)
def test_merging_loses_nothing_of_others_and_repeats_nothing_of_ours(
    present: list[object], ours: list[StateEntry]
) -> None:
    dropped = {e.instance_id for e in ours if e.ended_at == 0.0}

    merged = json.loads(render(merge(json.loads(render(present)), ours, dropped)))

    ids = {e.instance_id for e in ours}
    foreign = [item for item in present if _id(item) not in ids]
    assert [item for item in merged if _id(item) not in ids] == foreign
    assert sorted(_id(i) for i in merged if _id(i) in ids) == sorted(ids - dropped)
    for entry in ours:
        for item in merged:
            if _id(item) == entry.instance_id:
                assert item.items() >= to_json(entry).items()
    assert merge(merged, ours, dropped) == merged


def _id(item: object) -> int | None:
    value = item.get("instance_id") if isinstance(item, dict) else None
    return int(value) if isinstance(value, int | str) else None
