"""One answer to "where is the socket", for both ends."""

import os
import sys
from pathlib import Path

import platformdirs
import pytest

from vastd_protocol import paths


@pytest.fixture
def bare(monkeypatch, tmp_path):
    """No variable set, a home of its own."""
    for name in list(os.environ):
        if name.startswith(("VASTD", "XDG")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(paths, "is_private_dir", lambda _path: False)
    return tmp_path


@pytest.mark.parametrize("xdg", [None, "/elsewhere", "relative/is/ignored"])
def test_the_directories_are_those_of_platformdirs(bare, monkeypatch, xdg):
    if xdg is not None:
        monkeypatch.setenv("XDG_CONFIG_HOME", xdg)
        monkeypatch.setenv("XDG_STATE_HOME", xdg)
    if xdg is None or xdg.startswith("/"):
        assert paths.config_file() == Path(platformdirs.user_config_dir("vastd")) / "config.toml"
        assert paths.state_dir() == Path(platformdirs.user_state_dir("vastd"))
    else:
        assert paths.state_dir() == bare / ".local/state/vastd"


def test_a_named_path_comes_before_everything(bare, monkeypatch):
    for name, value in (("SOCKET", "/a/s"), ("CONFIG", "/a/c"), ("STATE_DIR", "/a/d")):
        monkeypatch.setenv(f"VASTD_{name}", value)

    assert paths.socket_candidates() == [Path("/a/s")]
    assert paths.config_file() == Path("/a/c")
    assert paths.state_dir() == Path("/a/d")


def test_the_socket_is_looked_for_in_the_runtime_directory_then_in_the_state(bare, monkeypatch):
    assert paths.socket_candidates() == [bare / ".local/state/vastd/run/vastd.sock"]

    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/7")
    assert paths.socket_candidates() == [
        Path("/run/user/7/vastd/vastd.sock"),
        bare / ".local/state/vastd/run/vastd.sock",
    ]


def test_the_users_run_directory_counts_when_it_is_private(bare, monkeypatch):
    monkeypatch.setattr(paths, "is_private_dir", lambda _path: True)
    mine = Path(f"/run/user/{os.getuid()}")

    assert paths.socket_candidates()[0] == mine / "vastd/vastd.sock"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(mine))
    assert len(paths.socket_candidates()) == 2


def test_a_state_of_its_own_has_a_socket_of_its_own(bare, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/7")
    monkeypatch.setenv("VASTD_STATE_DIR", "/s")

    assert paths.socket_candidates()[0] == Path("/s/run/vastd.sock")


def test_a_private_directory_is_ours_alone(tmp_path):
    directory = tmp_path / "d"
    directory.mkdir(mode=0o700)
    assert paths.is_private_dir(directory)
    directory.chmod(0o710)
    assert not paths.is_private_dir(directory)
    assert not paths.is_private_dir(tmp_path / "none")
    (tmp_path / "link").symlink_to(directory)
    assert not paths.is_private_dir(tmp_path / "link")


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is the system's")
def test_the_limit_of_a_socket_path_counts_bytes():
    assert not paths.too_long(Path("/" + "x" * 106))
    assert paths.too_long(Path("/" + "x" * 107))
    assert paths.too_long(Path("/" + "é" * 54))
