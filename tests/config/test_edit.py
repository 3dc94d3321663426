"""Changing one setting: comments stay, nothing broken is ever written."""

import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vastd.config import keys
from vastd.config.edit import set_values
from vastd.config.load import Origin, load
from vastd.config.settings import Value
from vastd.errors import ConfigError, InvalidRequest

COMMENTED = """\
# my settings
[budget]  # dollars
max_dph_usd = 2.5   # one GPU

[timing]
# waits
settle_s = 40
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "new" / "vastd" / "config.toml"


@pytest.fixture
def commented(tmp_path: Path) -> Path:
    path = tmp_path / "config.toml"
    path.write_text(COMMENTED)
    return path


def test_a_first_setting_makes_a_private_file(path: Path) -> None:
    config = set_values(path, {"timing.settle_s": 5}, {})

    assert path.read_text() == "[timing]\nsettle_s = 5\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.parent.parent.stat().st_mode) == 0o700
    assert config == load(path, {})
    assert config.origin("timing.settle_s") is Origin.FILE


def test_comments_and_order_stay(commented: Path) -> None:
    set_values(commented, {"timing.settle_s": 41}, {})
    set_values(commented, {"budget.per_day_usd": 7.5}, {})

    assert commented.read_text() == COMMENTED.replace("40", "41").replace(
        "# one GPU\n", "# one GPU\nper_day_usd = 7.5\n"
    )


def test_null_removes_the_key_and_the_default_counts_again(commented: Path) -> None:
    config = set_values(commented, {"timing.settle_s": None}, {})

    assert commented.read_text() == COMMENTED.replace("settle_s = 40\n", "")
    assert config.value.timing.settle_s == 30
    assert config.origin("timing.settle_s") is Origin.DEFAULT


@pytest.mark.parametrize(
    ("bad", "value"),
    [("timing.nonsense", 1), ("timing.lease_s", "long"), ("timing.lease_s", -1), ("settle_s", 7)],
)
def test_several_settings_are_written_at_once_or_none(
    commented: Path, bad: str, value: Value
) -> None:
    with pytest.raises((InvalidRequest, ConfigError)):
        set_values(commented, {"timing.settle_s": 5, "budget.max_dph_usd": 1, bad: value}, {})
    assert commented.read_text() == COMMENTED

    config = set_values(commented, {"timing.settle_s": 5, "max_dph_usd": 1}, {})
    assert (config.value.timing.settle_s, config.value.budget.max_dph_usd) == (5, 1)


def test_settings_that_only_fit_together_can_be_set_together(path: Path) -> None:
    # A lease is renewed before it ends: 200 fits only with a shorter interval.
    config = set_values(path, {"timing.lease_s": 200, "timing.lease_renew_s": 60}, {})

    assert config.value.timing.lease_s == 200


def test_removing_what_is_not_there_changes_nothing(commented: Path) -> None:
    set_values(commented, {"vast.url": None}, {})

    assert commented.read_text() == COMMENTED


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("ssh_config", "true", True),
        ("timing.attempts", "4", 4),
        ("timing.settle_s", "0.5", 0.5),
        ("websocket.origins", "http://a, http://b", ["http://a", "http://b"]),
        ("defaults.image", "me/mine:1", "me/mine:1"),
        ("vast.url", "http://127.0.0.1:9", "http://127.0.0.1:9"),
    ],
)
def test_a_text_is_read_as_the_setting_needs_it(
    path: Path, key: str, text: str, value: Value
) -> None:
    config = set_values(path, {key: text}, {})

    assert config.get(keys.find(key).dotted) == value


@pytest.mark.parametrize(
    ("key", "value", "message", "hint"),
    [
        ("timing.setle_s", 1, "no setting is called 'timing.setle_s'", "'timing.settle_s'"),
        ("setle_s", 1, "no setting is called 'setle_s'", "'timing.settle_s'"),
        ("paths.config", "/x", "paths.config cannot be set here", "$VASTD_CONFIG"),
        ("timing.settle_s", "4h", "timing.settle_s: expected a number of seconds", ""),
        ("timing.settle_s", 0, "timing.settle_s: expected a number of seconds above 0", ""),
        ("ssh_config", "maybe", "defaults.ssh_config: expected true or false", ""),
        ("timing.settle_s", "nan", "expected a number of seconds", ""),
    ],
)
def test_a_bad_request_changes_nothing(
    commented: Path, key: str, value: Value, message: str, hint: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        set_values(commented, {key: value}, {})

    assert message in str(caught.value)
    assert hint in caught.value.hint
    assert commented.read_text() == COMMENTED


def test_settings_that_contradict_each_other_are_not_written(commented: Path) -> None:
    with pytest.raises(ConfigError, match="lease_renew_s"):
        set_values(commented, {"timing.lease_s": 200}, {})

    assert commented.read_text() == COMMENTED


def test_a_broken_file_is_not_touched(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_text("[timing\n")

    with pytest.raises(ConfigError, match=r"config\.toml:1: not valid TOML"):
        set_values(path, {"timing.settle_s": 1}, {})

    assert path.read_text() == "[timing\n"


def test_a_wrong_value_can_be_repaired_through_here(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_text("timing.settle_s = 'soon'  # hm\n")

    set_values(path, {"timing.settle_s": 9}, {})

    assert path.read_text() == "timing.settle_s = 9  # hm\n"


def test_a_link_into_dotfiles_stays_a_link(path: Path, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.toml"
    real.write_text("")
    real.chmod(0o644)
    path.parent.mkdir(parents=True)
    path.symlink_to(real)

    set_values(path, {"timing.settle_s": 9}, {})

    assert path.is_symlink()
    assert real.read_text() == "[timing]\nsettle_s = 9\n"
    assert stat.S_IMODE(real.stat().st_mode) == 0o644


def test_a_directory_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(ConfigError, match="Not a directory"):
        set_values(tmp_path / "file" / "config.toml", {"timing.settle_s": 1}, {})


_FILES = st.sampled_from(
    [
        "",
        COMMENTED,
        "timing.grace_s = 5\n",
        "timing = { grace_s = 5 }\n",
        "[timing]\r\ngrace_s = 5\r\n",
    ]
)


_TEXTS = {
    "defaults.image", "defaults.ssh_key", "vast.api_key_file", "needs.gpu_name", "job.heartbeat",
    "job.checkpoint", "timing.salvage",
}  # fmt: skip


@given(_FILES, st.sampled_from(sorted(keys.all_keys())), st.integers(1, 4))
def test_what_was_set_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, text: str, dotted: str, number: int
) -> None:
    path = tmp_path_factory.mktemp("c") / "config.toml"
    path.write_text(text)
    before = load(path, {})
    key = keys.all_keys()[dotted]
    value: Value = number
    if dotted in _TEXTS:
        value = "xy"
    elif isinstance(key.default, str | bool | list) or dotted.startswith(
        ("timing.lease", "retention.records")
    ):
        value = key.default

    after = set_values(path, {dotted: value}, {})

    assert load(path, {}) == after
    assert after.get(dotted) == value
    for other in set(keys.all_keys()) - {dotted}:
        assert after.get(other) == before.get(other)
    assert set_values(path, {dotted: None}, {}).origin(dotted) is Origin.DEFAULT
