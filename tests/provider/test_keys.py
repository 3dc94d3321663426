"""Where the API key comes from, and that it stays hidden."""

import pickle
from pathlib import Path

import msgspec
import pytest

from vastd.errors import ConfigError
from vastd.provider.keys import Key, Secret, find_key, make_key

KEY = "0123456789abcdef" * 4


def write(path: Path, text: str = KEY, mode: int = 0o600) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def find(home: Path, *, api_key_file: Path | None = None, **environ: str) -> Key:
    return find_key(api_key_file=api_key_file, environ=environ, home=home)


@pytest.mark.req("CFG-02")
def test_the_places_are_tried_in_the_order_of_the_contract(tmp_path: Path):
    """Every place holds a key of its own; each is taken away in turn."""
    configured = write(tmp_path / "mine.key", "configured-key")
    official = write(tmp_path / ".config/vastai/vast_api_key", "official-key\n")
    older = write(tmp_path / ".vast_api_key", "older-key")
    write(tmp_path / "credentials/vast_api_key", "credential-key")
    environ = {"CREDENTIALS_DIRECTORY": str(tmp_path / "credentials")}

    found = [find(tmp_path, api_key_file=configured, VAST_API_KEY="env-key", **environ)]
    found.append(find(tmp_path, VAST_API_KEY="env-key", **environ))
    found.append(find(tmp_path, **environ))
    official.unlink()
    found.append(find(tmp_path, **environ))
    older.unlink()
    found.append(find(tmp_path, **environ))

    assert [(key.secret.reveal(), key.origin) for key in found] == [
        ("configured-key", f"file {configured}"),
        ("env-key", "environment variable VAST_API_KEY"),
        ("official-key", f"file {official}"),
        ("older-key", f"file {older}"),
        ("credential-key", "systemd credential vast_api_key"),
    ]


def test_xdg_config_home_moves_the_official_file_unless_it_is_relative(tmp_path: Path):
    write(tmp_path / "xdg/vastai/vast_api_key", "moved-key")
    write(tmp_path / ".config/vastai/vast_api_key", "default-key")

    assert find(tmp_path, XDG_CONFIG_HOME=str(tmp_path / "xdg")).secret == Secret("moved-key")
    assert find(tmp_path, XDG_CONFIG_HOME="xdg").secret == Secret("default-key")


def test_a_home_mark_in_the_configured_path_is_understood(tmp_path: Path):
    write(tmp_path / "keys/vast")

    assert find(tmp_path, api_key_file=Path("~/keys/vast")).suffix == "cdef"


def test_without_a_key_every_place_that_was_looked_at_is_named(tmp_path: Path):
    with pytest.raises(ConfigError) as caught:
        find(tmp_path, VAST_API_KEY="  ")

    assert str(caught.value) == (
        "no vast api key found; looked at environment variable VAST_API_KEY (empty), "
        f"file {tmp_path}/.config/vastai/vast_api_key (does not exist), "
        f"file {tmp_path}/.vast_api_key (does not exist), "
        "systemd credential vast_api_key (none passed)"
    )
    assert "VAST_API_KEY" in caught.value.hint


def test_an_empty_or_huge_file_is_passed_over(tmp_path: Path):
    write(tmp_path / ".config/vastai/vast_api_key", "\n")
    write(tmp_path / ".vast_api_key", "x" * 5000)

    with pytest.raises(ConfigError, match=r"\(empty\).*\(too large"):
        find(tmp_path)


@pytest.mark.parametrize("content", [None, "", "x" * 5000])
def test_a_configured_file_that_cannot_be_used_is_not_replaced_by_another_place(
    content: str | None, tmp_path: Path
):
    path = tmp_path / "mine.key"
    if content is not None:
        write(path, content)

    with pytest.raises(ConfigError, match=r"api_key_file: file .*mine\.key"):
        find(tmp_path, api_key_file=path, VAST_API_KEY=KEY)


def test_a_directory_in_the_place_of_a_file_is_reported_and_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    (tmp_path / ".config/vastai/vast_api_key").mkdir(parents=True)
    write(tmp_path / ".vast_api_key")

    assert find(tmp_path).origin == f"file {tmp_path}/.vast_api_key"
    assert "cannot read the api key" in caplog.text


@pytest.mark.parametrize(
    "text", ["", "two words-and-more", "line\nbreak", "na\u00efve", "bell\x07"]
)
def test_text_that_cannot_be_a_key_is_refused_without_being_shown(text: str, tmp_path: Path):
    path = write(tmp_path / "mine.key", f"{text or ' '}") if text else None

    with pytest.raises(ConfigError) as caught:
        find(tmp_path, api_key_file=path) if path else make_key(text, "a test")

    assert not text or text not in f"{caught.value}{caught.value.hint}"


def test_a_file_others_can_read_is_warned_about_but_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    write(tmp_path / ".vast_api_key", mode=0o644)

    assert find(tmp_path).suffix == "cdef"
    assert "chmod 600" in caplog.text


def test_a_systemd_credential_is_not_warned_about(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    write(tmp_path / "c/vast_api_key", mode=0o440)

    assert find(tmp_path, CREDENTIALS_DIRECTORY=str(tmp_path / "c")).suffix == "cdef"
    assert caplog.text == ""


def test_only_the_end_of_a_long_key_is_ever_shown():
    assert make_key(KEY, "a test").suffix == "cdef"
    assert make_key("short-key", "a test").suffix == ""


@pytest.mark.req("CFG-02")
def test_a_key_does_not_show_itself():
    key = make_key(KEY, "a test")

    assert KEY not in f"{key} {key!r} {key.secret} {key.secret!r} {vars(ConfigError(key))}"
    with pytest.raises(TypeError):
        msgspec.json.encode(key)
    with pytest.raises(TypeError):
        pickle.dumps(key)


def test_secrets_compare_by_their_text():
    assert Secret("a") == Secret("a")
    assert Secret("a") != Secret("b")
    assert len({Secret("a"), Secret("a")}) == 1
