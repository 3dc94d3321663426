"""Files replaced as a whole."""

import os
import stat
import time
from pathlib import Path

import pytest

from vastd.files import STALE_TEMP_S, make_private_dir, remove_leftovers, write_atomic


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_file_has_the_mode_asked_for_or_what_the_umask_allows(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_atomic(tmp_path / "a", b"1")
        write_atomic(tmp_path / "b", b"1", mode=0o600)
    finally:
        os.umask(before)

    assert (mode_of(tmp_path / "a"), mode_of(tmp_path / "b")) == (0o640, 0o600)


def test_a_file_that_exists_is_replaced_and_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    path.chmod(0o604)

    write_atomic(path, b"new")

    assert (path.read_bytes(), mode_of(path)) == (b"new", 0o604)
    assert list(tmp_path.iterdir()) == [path]


def test_a_target_that_cannot_be_replaced_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)

    with pytest.raises(IsADirectoryError):
        write_atomic(tmp_path / "a", b"new")

    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_missing_parents_are_made_private_and_present_ones_left_alone(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)

    make_private_dir(tmp_path / "a" / "b")
    make_private_dir(tmp_path / "a" / "b")

    assert [mode_of(tmp_path / p) for p in ("a", "a/b", ".")] == [0o700, 0o700, 0o755]


def test_a_file_in_the_way_of_a_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").touch()

    with pytest.raises(NotADirectoryError):
        make_private_dir(tmp_path / "a")


def test_leftovers_of_killed_writers_go_after_an_hour(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    old, new, other = (tmp_path / n for n in (".a.json.1.tmp", ".a.json.2.tmp", ".b.json.1.tmp"))
    for file in (old, new, other):
        file.touch()
    long_ago = time.time() - STALE_TEMP_S - 1
    for file in (old, other):
        os.utime(file, (long_ago, long_ago))

    remove_leftovers(path)

    assert sorted(p.name for p in tmp_path.iterdir()) == [new.name, other.name]
