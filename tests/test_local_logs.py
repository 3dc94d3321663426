"""The copies of job logs at home: bounded, honest about it, and their offsets stay true."""

import os
from pathlib import Path

from vastd.local_logs import LocalLogs

CAP = 1000


def capped(tmp_path: Path) -> LocalLogs:
    return LocalLogs(tmp_path, lambda: CAP)


def test_a_log_ends_at_its_cap_with_a_line_that_says_so(tmp_path: Path) -> None:
    logs = capped(tmp_path)
    data = bytes(range(256)) * 8

    logs.append("j1", 0, data[:900])
    under = logs.capped("j1")
    size = logs.append("j1", 900, data[900:])

    assert not under
    assert logs.capped("j1")
    assert logs.size("j1") == size
    kept = logs.read("j1", 0, 10_000)
    assert kept[:CAP] == data[:CAP]  # every offset below the cap is the machine's own
    assert b"ends here, after 1000 bytes (retention.job_log_max_mb)" in kept[CAP:]
    assert size - CAP < 300


def test_a_log_of_exactly_the_cap_is_whole(tmp_path: Path) -> None:
    logs = capped(tmp_path)

    logs.append("j1", 0, b"x" * CAP)

    assert not logs.capped("j1")
    assert logs.size("j1") == CAP


def test_a_cap_that_was_lowered_below_the_log_only_ends_it(tmp_path: Path) -> None:
    LocalLogs(tmp_path).append("j1", 0, b"x" * 2 * CAP)
    logs = capped(tmp_path)

    logs.append("j1", 2 * CAP, b"y" * 10)

    assert logs.read("j1", 0, 2 * CAP) == b"x" * 2 * CAP
    assert b"y" not in logs.read("j1", 2 * CAP, 10)
    assert logs.capped("j1")


def test_stored_logs_come_oldest_first_and_a_dropped_one_is_gone_whole(tmp_path: Path) -> None:
    logs = capped(tmp_path)
    for age, job_id in ((5, "j-old"), (1, "j-new")):
        logs.append(job_id, 0, b"x" * 2 * CAP)
        os.utime(logs.path(job_id), (1e9 - age, 1e9 - age))

    assert [(log.job_id, log.written_at) for log in logs.stored()] == [
        ("j-old", 1e9 - 5),
        ("j-new", 1e9 - 1),
    ]
    logs.drop("j-old")
    assert [log.job_id for log in logs.stored()] == ["j-new"]
    assert not logs.capped("j-old")
