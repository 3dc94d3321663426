"""Who may own a state directory: one process, also when the directory is gone."""

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from vastd.errors import StoreLocked
from vastd.store.lock import locked

linux = pytest.mark.skipif(sys.platform != "linux", reason="abstract sockets are Linux's")


def test_a_second_one_is_told_who_has_it_and_may_follow(tmp_path: Path) -> None:
    with (
        locked(tmp_path),
        pytest.raises(StoreLocked, match=rf"pid {os.getpid()}"),
        locked(tmp_path),
    ):
        pass

    with locked(tmp_path):
        assert (tmp_path / "vastd.lock").read_text() == f"{os.getpid()}\n"


@linux
@pytest.mark.parametrize("through_link", [False, True])
def test_a_removed_directory_is_still_owned(tmp_path: Path, through_link: bool) -> None:
    state, link = tmp_path / "state", tmp_path / "link"
    link.symlink_to(state)
    with locked(state):
        shutil.rmtree(state)
        state.mkdir()

        with (
            pytest.raises(StoreLocked, match=rf"pid {os.getpid()}\) still owns"),
            locked(link if through_link else state),
        ):
            pass

    with locked(state):
        assert (state / "vastd.lock").exists()


@linux
def test_a_killed_owner_owns_nothing(tmp_path: Path) -> None:
    code = (
        "import pathlib, sys, vastd.store.lock as lock\n"
        "with lock.locked(pathlib.Path(sys.argv[1])):\n    print(flush=True); input()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as owner:
        assert owner.stdout is not None
        owner.stdout.readline()
        shutil.rmtree(tmp_path)
        with pytest.raises(StoreLocked, match=f"pid {owner.pid}"), locked(tmp_path):
            pass
        owner.kill()

    with locked(tmp_path):
        assert (tmp_path / "vastd.lock").exists()


@linux
def test_two_directories_have_two_owners_and_a_stranger_s_name_keeps_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vastd.store.lock._holder", lambda _: None)  # somebody else's
    real_bind = socket.socket.bind

    def taken(self: socket.socket, address: object) -> None:
        if isinstance(address, str) and address.startswith("\0vastd-"):
            raise OSError(98, "Address already in use")
        real_bind(self, address)  # type: ignore[arg-type]

    with locked(tmp_path / "a"), locked(tmp_path / "b"):
        pass
    monkeypatch.setattr("socket.socket.bind", taken)
    with locked(tmp_path / "c"):
        assert (tmp_path / "c" / "vastd.lock").exists()
