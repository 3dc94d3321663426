"""The daemon's own log: bounded, private, and everything the process prints is in it."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from vastd.errors import StoreError
from vastd.log_file import OLD_FILES, log_to_file

LOUD = """
import logging, os, sys
from pathlib import Path
from vastd import log_file
log_file.MAX_BYTES = 2000
log_file.LogFile.__init__.__defaults__ = (2000,)
log_file.log_to_file(Path(sys.argv[1]), logging.INFO)
for number in range(400):
    logging.getLogger("vastd").info("line %04d", number)
print("printed", flush=True)
os.write(2, b"crashed\\n")
"""


@pytest.fixture
def logged(tmp_path: Path) -> Path:
    log = tmp_path / "logs" / "vastd.log"
    subprocess.run([sys.executable, "-c", LOUD, log], check=True, timeout=60, capture_output=True)
    return log


def test_old_files_are_few_small_private_and_the_newest_lines_are_kept(logged: Path) -> None:
    files = sorted(logged.parent.iterdir())

    assert len(files) == 1 + OLD_FILES
    assert all(path.stat().st_size <= 2100 for path in files)
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in files)
    assert "line 0399" in logged.read_text()
    assert "line 0000" not in "".join(path.read_text() for path in files)


def test_what_the_process_prints_by_itself_goes_to_the_newest_file(logged: Path) -> None:
    assert logged.read_text().endswith("printed\ncrashed\n")


def test_a_log_that_cannot_be_made_is_told_with_its_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(StoreError, match="cannot write the log") as caught:
        log_to_file(tmp_path / "file" / "vastd.log", logging.INFO)

    assert "--log-file" in (caught.value.hint or "")


def test_a_link_where_the_log_belongs_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious")
    os.symlink(tmp_path / "precious", tmp_path / "vastd.log")

    with pytest.raises(StoreError, match="cannot write the log"):
        log_to_file(tmp_path / "vastd.log", logging.INFO)

    assert (tmp_path / "precious").read_text() == "precious"
