"""The unit files as they are shipped and as they are written for one user."""

from pathlib import Path

import pytest

from support.source_tree import ROOT
from vastctl.errors import CliError
from vastctl.units import SERVICE, SOCKET, carried, quoted, shipped, unit_dir, unit_files


@pytest.mark.parametrize("name", [SERVICE, SOCKET])
def test_what_vastctl_writes_comes_from_the_one_source(name: str):
    assert (ROOT / "vastctl/systemd" / name).is_symlink()
    assert shipped(name) == (ROOT / "systemd" / name).read_text()


def differences(before: str, after: str) -> list[str]:
    return [line for line in after.splitlines() if line not in before.splitlines()]


def test_only_the_program_and_the_environment_are_put_in(isolated_home: Path):
    environ = {
        "VASTD_STATE_DIR": "/s p/%x", "VAST_URL": "http://127.0.0.1:9", "VAST_API_KEY": "secret",
        "PATH": "/bin", "XDG_CONFIG_HOME": "relative", "XDG_STATE_HOME": "/x",
    }  # fmt: skip

    service = unit_files(["/opt/my tools/python", "-m", "vastd", "$a"], environ)[0]

    assert service.path == isolated_home / ".config/systemd/user/vastd.service"
    assert service.state == "new"
    assert differences(shipped(SERVICE), service.text) == [
        'ExecStart="/opt/my tools/python" -m vastd "$$a"',
        'Environment="VASTD_STATE_DIR=/s p/%%x"',
        "Environment=VAST_URL=http://127.0.0.1:9",
        "Environment=XDG_STATE_HOME=/x",
    ]
    assert "secret" not in service.text


def test_the_socket_lies_where_clients_with_that_environment_look_first(
    isolated_home: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("VASTD_SOCKET")
    assert unit_files(["/v"], {})[1].text == shipped(SOCKET)

    monkeypatch.setenv("VASTD_STATE_DIR", "/srv/%a")
    text = unit_files(["/v"], {"VASTD_STATE_DIR": "/srv/%a"})[1].text
    assert differences(shipped(SOCKET), text) == ["ListenStream=/srv/%%a/run/vastd.sock"]

    monkeypatch.setenv("VASTD_SOCKET", "/t/" + "v" * 120)
    with pytest.raises(CliError, match="longer than the system allows"):
        unit_files(["/v"], {"VASTD_SOCKET": "/t/" + "v" * 120})


def test_a_file_is_replaced_as_a_whole_and_its_state_is_known(isolated_home: Path):
    for file in unit_files(["/v"], {}):
        file.write()
    service = unit_dir() / SERVICE

    assert [file.state for file in unit_files(["/v"], {})] == ["unchanged", "unchanged"]
    assert service.stat().st_mode & 0o777 == 0o644
    service.write_text(service.read_text() + "# mine\n")
    assert [file.state for file in unit_files(["/v"], {})] == ["changed", "unchanged"]
    assert [path.name for path in service.parent.iterdir() if path.name.startswith(".")] == []


def test_defaults_of_the_shell_need_no_line(isolated_home: Path):
    environ = {"XDG_CONFIG_HOME": str(isolated_home / ".config"), "VASTD_CONFIG": ""}

    assert carried(environ) == {}


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("plain", "plain"),
        ("", '""'),
        ("a b", '"a b"'),
        ('a"b', '"a\\"b"'),
        ("a\\b", '"a\\\\b"'),
        ("50%", '"50%%"'),
        ("a;b", '"a;b"'),
        ("it's", '"it\'s"'),
    ],
)
def test_words_are_quoted_as_systemd_reads_them(text: str, written: str):
    assert quoted(text) == written


def test_a_line_break_cannot_smuggle_in_a_setting():
    with pytest.raises(CliError, match="cannot stand in a unit file"):
        quoted("x\nExecStartPre=/bin/evil")


def test_the_readme_tells_what_each_wall_was_tried_with():
    readme = (ROOT / "systemd/README.md").read_text()
    service = shipped(SERVICE)
    walls = service[service.index("\nUMask=") : service.index("\n[Install]")].splitlines()

    keys = {line.partition("=")[0] for line in walls if line and line[0] not in "#"}

    assert len(keys) == 11
    assert {key for key in keys if f"`{key}=" not in readme} == set()
