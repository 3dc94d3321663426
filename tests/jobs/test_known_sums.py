"""When a remembered checksum may stand for reading the file again."""

import os
from hashlib import sha256
from pathlib import Path

import pytest
from msgspec import structs

from vastd.jobs import known_sums
from vastd.jobs.digest import sha256_of
from vastd.jobs.known_sums import FileState, KnownSums, LocalSums

SECOND_NS = 1_000_000_000
CHANGED_NS = 1_790_000_000 * SECOND_NS + 123_456_789
STATE = FileState(device=1, inode=2, bytes=3, mtime_ns=CHANGED_NS - SECOND_NS, ctime_ns=CHANGED_NS)
LATER_NS = CHANGED_NS + 60 * SECOND_NS


@pytest.fixture
def reads(monkeypatch) -> list[Path]:
    """The files whose content was read, in turn; the clock is far ahead of every file."""
    seen: list[Path] = []

    async def counted(path: Path) -> str:
        seen.append(path)
        return await sha256_of(path)

    monkeypatch.setattr(known_sums, "sha256_of", counted)
    monkeypatch.setattr(known_sums.time, "time_ns", lambda: 2**62)
    return seen


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


async def test_a_file_that_did_not_change_is_read_once(tmp_path, reads):
    path = tmp_path / "a.py"
    path.write_text("one")
    sums = LocalSums()

    assert [await sums.of(path) for _ in range(3)] == [digest("one")] * 3

    assert reads == [path]


async def test_an_edit_that_keeps_size_and_time_is_noticed(tmp_path, reads):
    path = tmp_path / "a.py"
    path.write_text("one")
    os.utime(path, (1000, 1000))
    sums = LocalSums()
    await sums.of(path)
    path.write_text("two")
    os.utime(path, (1000, 1000))

    assert await sums.of(path) == digest("two")


async def test_another_file_moved_to_the_name_is_read(tmp_path, reads):
    path, other = tmp_path / "a.py", tmp_path / "b.py"
    for file, text in ((path, "one"), (other, "two")):
        file.write_text(text)
        os.utime(file, (1000, 1000))
    sums = LocalSums()
    await sums.of(path)
    other.replace(path)

    assert await sums.of(path) == digest("two")


async def test_a_file_changed_in_the_moment_of_the_look_is_read_again(tmp_path, reads, monkeypatch):
    path = tmp_path / "a.py"
    path.write_text("one")
    changed_ns = path.stat().st_ctime_ns
    monkeypatch.setattr(known_sums.time, "time_ns", lambda: changed_ns)
    sums = LocalSums()
    await sums.of(path)

    await sums.of(path)

    assert reads == [path, path]


@pytest.mark.parametrize("field", ["device", "inode", "bytes", "mtime_ns", "ctime_ns"])
def test_a_digest_is_good_for_one_state_of_the_file(field):
    known = KnownSums[str]()
    known.keep("a", STATE, "d", LATER_NS)

    assert known.get("a", STATE) == "d"
    assert known.get("b", STATE) is None
    assert known.get("a", structs.replace(STATE, **{field: getattr(STATE, field) + 1})) is None


@pytest.mark.parametrize(
    ("ctime_ns", "now_ns", "settled"),
    [
        (CHANGED_NS, CHANGED_NS, False),
        (CHANGED_NS, CHANGED_NS + 1, True),
        (CHANGED_NS, CHANGED_NS - SECOND_NS, False),  # the clock was set back
        # Whole seconds may be all the file system keeps.
        (SECOND_NS, SECOND_NS + SECOND_NS // 2, False),
        (SECOND_NS, 3 * SECOND_NS, False),
        (SECOND_NS, 3 * SECOND_NS + 1, True),
    ],
)
def test_a_state_counts_when_no_later_change_can_look_like_it(ctime_ns, now_ns, settled):
    state = structs.replace(STATE, ctime_ns=ctime_ns)
    known = KnownSums[str]()
    known.keep("a", STATE, "old", LATER_NS)

    known.keep("a", state, "new", now_ns)

    assert known.get("a", state) == ("new" if settled else None)


def test_no_more_than_a_bounded_number_of_files_is_remembered(monkeypatch):
    monkeypatch.setattr(known_sums, "_MAX_FILES", 2)
    known = KnownSums[str]()
    for name in ("a", "b", "c"):
        known.keep(name, STATE, name, LATER_NS)

    assert [known.get(name, STATE) for name in ("a", "b", "c")] == [None, None, "c"]
