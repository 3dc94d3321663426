"""Reading the configuration: defaults, file, environment, and every way a file can be wrong."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.permissions import as_ordinary_user
from vastd.config import keys
from vastd.config.lines import line_of
from vastd.config.load import Config, Origin, load, parse
from vastd.config.settings import PROFILE_IMAGES, Profile, Settings
from vastd.core.limits import Caps, Limits
from vastd.errors import ConfigError
from vastd.provider.pacing import DEFAULT_RATES, rates_from

PATH = Path("/etc/x/config.toml")


def read(text: str, **environ: str) -> Config:
    return parse(text, PATH, environ)


def refusal(text: str, **environ: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        read(text, **environ)
    return caught.value


def test_without_a_file_every_setting_is_a_default(tmp_path: Path) -> None:
    config = load(tmp_path / "absent.toml", {})

    assert config.value == Settings()
    assert {config.origin(key) for key in keys.all_keys()} == {Origin.DEFAULT}
    assert config.warnings == ()


def test_a_file_the_user_named_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such configuration file"):
        load(tmp_path / "absent.toml", {}, must_exist=True)


def test_every_setting_says_why_its_default_is_what_it_is() -> None:
    for key in keys.all_keys().values():
        assert len(key.source) > 5, key.dotted
        if key.default is not None:
            assert keys.plain(keys.convert(key, key.default)) == key.default


@pytest.mark.parametrize(
    ("key", "default"),
    [
        ("defaults.disk_gb", 50),
        ("defaults.max_runtime_s", 43200),
        ("defaults.idle_s", 1200),
        ("defaults.ssh_config", False),
        ("timing.list_interval_busy_s", 20),
        ("timing.list_interval_idle_s", 60),
        ("timing.boot_warn_s", 300),
        ("timing.boot_timeout_s", 600),
        ("timing.ssh_budget_s", 300),
        ("timing.ssh_spacing_s", 15),
        ("timing.ssh_connect_s", 15),
        ("timing.settle_s", 30),
        ("timing.destroy_retry_s", 30),
        ("timing.destroy_shout_s", 600),
        ("timing.heartbeat_stale_factor", 2),
        ("timing.grace_s", 60),
        ("timing.lease_s", 3600),
        ("timing.lease_renew_s", 300),
        ("timing.lease_while_busy", "deadline"),
        ("timing.on_expiry", "stop_if_uncollected"),
        ("timing.attempts", 3),
        ("budget.per_job_usd", 10),
        ("budget.per_day_usd", 25),
        ("budget.max_dph_usd", 4),
        ("budget.per_project_usd", None),
        ("budget.per_month_usd", None),
        ("budget.warn_percent", 80),
        ("websocket.port", None),
        ("websocket.origins", []),
    ],
)
def test_the_documented_defaults_hold(key: str, default: object) -> None:
    assert read("").get(key) == default


def test_the_core_and_the_pacing_have_the_same_defaults() -> None:
    timing = msgspec.structs.asdict(Settings().timing) | {
        "warn_percent": Settings().budget.warn_percent,
        "idle_warn_s": Settings().defaults.idle_s,
        "end_at_zero_credit": Settings().defaults.on_zero_credit == "end",
    }
    limits = msgspec.structs.asdict(Limits())

    # No cap without a configuration: the holder fills it in.
    assert limits.pop("caps") == Caps()
    lease = msgspec.structs.asdict(limits.pop("lease"))
    names = {"lease_s": "lease_s", "renew_s": "lease_renew_s", "while_busy": "lease_while_busy",
             "on_expiry": "on_expiry", "required": "lease_required"}  # fmt: skip
    assert lease == {mine: timing[theirs] for mine, theirs in names.items()} | {"salvage": ""}
    assert limits == {name: timing.get(name) for name in limits}
    assert rates_from(msgspec.structs.asdict(Settings().rates)) == DEFAULT_RATES


def test_the_file_wins_over_defaults_and_says_so() -> None:
    config = read("[timing]\nsettle_s = 1\n[websocket]\norigins = ['http://localhost:3000']")

    assert config.value.timing.settle_s == 1.0
    assert config.value.websocket.origins == ("http://localhost:3000",)
    assert config.origin("timing.settle_s") is Origin.FILE
    assert config.origin("timing.grace_s") is Origin.DEFAULT


def test_the_environment_wins_over_the_file() -> None:
    config = read('[vast]\nurl = "https://one.example"', VAST_URL="http://127.0.0.1:8000/x/")

    assert config.value.vast.url == "http://127.0.0.1:8000/x"  # two slashes are another path
    assert config.origin("vast.url") is Origin.ENVIRONMENT
    assert config.warnings == ()


def test_an_empty_variable_counts_as_unset() -> None:
    assert read("", VAST_URL="").origin("vast.url") is Origin.DEFAULT


def test_the_project_wins_over_the_environment() -> None:
    config = read("", VAST_URL="https://two.example").overlaid(
        {"image": "me/mine:1", "vast.url": "https://three.example"}, Origin.PROJECT
    )

    assert config.value.defaults.image == "me/mine:1"
    assert config.origin("defaults.image") is Origin.PROJECT
    assert config.value.vast.url == "https://three.example"


def test_a_bad_address_in_the_environment_names_the_variable() -> None:
    error = refusal("", VAST_URL="https://user:secret@vast.example")

    assert str(error).startswith("$VAST_URL: vast.url: expected an http or https address")
    assert "secret" not in str(error)


def test_the_key_over_plain_http_is_warned_about() -> None:
    assert "unencrypted" in read("", VAST_URL="http://vast.example").warnings[0]
    assert read("", VAST_URL="http://[::1]:80").warnings == ()


@pytest.mark.req("CRE-03")
def test_the_image_comes_from_the_file_or_else_from_the_profile() -> None:
    plain, arf, set_ = (
        read(t).value.defaults for t in ("", "[defaults]\nprofile='arf'", "[defaults]\nimage='a'")
    )

    assert plain.image_for() == PROFILE_IMAGES[Profile.ARIS]
    assert plain.image_for(Profile.ARF) == arf.image_for() == PROFILE_IMAGES[Profile.ARF]
    assert set_.image_for(Profile.ARF) == "a"


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("[timing]\n\nsetle_s = 3", ":3: unknown key 'setle_s' in [timing]", "'settle_s'"),
        ("\n[timng]\nsettle_s = 3", ":2: unknown table [timng]", "'timing'"),
        ("settle_s = 3", ":1: 'settle_s' stands outside of its table", "below [timing]"),
        ("[vast]\nsettle_s = 3", ":2: unknown key 'settle_s' in [vast]", "below [timing]"),
        ("colour = 1", ":1: unknown key 'colour' outside of any table", ""),
        ("timing = 3", ":1: 'timing' is a table", "[timing]"),
        ("[[timing]]\nsettle_s = 3", ":1: 'timing' is a table", "[timing]"),
        ("[vast]\napi_key = 'k'", ":2: unknown key 'api_key' in [vast]", "vast.api_key_file"),
        ("[timing]\nsettle_s = '3'", ":2: timing.settle_s: expected a number of seconds", ""),
        ("[timing]\nsettle_s = true", "above 0 to 31,536,000, got true", ""),
        ("[timing]\nsettle_s = -1", "got -1", ""),
        ("[timing]\nsettle_s = inf", "got inf", ""),
        ("[timing]\nsettle_s = nan", "got nan", ""),
        ("[timing]\nsettle_s = 2020-01-01", "got a date", ""),
        ("[timing]\nattempts = 2.5", "expected a whole number from 1 to 100, got 2.5", ""),
        ("[timing]\nattempts = [1]", "got a list", ""),
        ("[timing.attempts]\nx = 1", "got a table", ""),
        ("[timing]\non_expiry = 'destory'", "got 'destory'; did you mean 'destroy'?", ""),
        ("[defaults]\nprofile = 'aros'", "expected one of 'aris', 'arf', got 'aros'", ""),
        ("[defaults]\nimage = 'my image'", "expected an image name without spaces", ""),
        ('[defaults]\nimage = "image\\n"', "expected", ""),
        ("[websocket]\nport = 70000", "expected a whole number from 1 to 65,535", ""),
        ("[websocket]\norigins = ['*']", "expected a list of web origins", ""),
        ("[budget]\nper_month_usd = -1", "expected a number of dollars from 0", ""),
        ("[rates]\nsearch = 4000", "expected a number of seconds from 0 to 3,600", ""),
        ("[timing]\nlease_s = 60", "timing.lease_renew_s (300) is not below", "twelfth"),
        ("[timing\n", ":1: not valid TOML", ""),
        ("[timing]\nsettle_s = \n", ":2: not valid TOML", ""),
        ("[timing]\nsettle_s = 1\nsettle_s = 2", ":3: not valid TOML", ""),
        ("x = " + "9" * 5000, "not valid TOML", ""),
        ("[timing]\nattempts = " + "9" * 400, "expected a whole number", ""),
        ("[timing]\nsettle_s = " + "9" * 400, "expected a number", ""),
        ("x = " + "[" * 5000, "not valid TOML", ""),
    ],
)
def test_a_mistake_is_named_with_its_line_and_remedy(text: str, message: str, hint: str) -> None:
    error = refusal(text)

    assert str(PATH) in str(error)
    assert message in str(error)
    assert hint in error.hint


def test_all_lines_with_mistakes_are_named() -> None:
    error = refusal("[timing]\na = 1\nsettle_s = 0\n[x]\n")

    assert str(error).startswith(f"{PATH}:2: ")
    assert str(error).endswith("(more problems in line 3, 4)")


@pytest.mark.parametrize("value", ["'sk-secret'", "['sk-secret']", "{a = 'sk-secret'}"])
def test_a_value_that_fails_is_not_repeated(value: str) -> None:
    for line in (f"[timing]\nsettle_s = {value}", f"[vast]\napi_key = {value}", f"k = {value}"):
        error = refusal(line)

        assert "sk-secret" not in str(error) + error.hint


def test_the_line_is_found_in_every_way_toml_writes_a_key() -> None:
    for text, line in [
        ("timing.wrong = 1", 1),
        ('\n"timing"."wrong" = 1', 2),
        ("\n\ntiming = { settle_s = 1, wrong = 2 }", 3),
        ("[ timing ] # wrong = 2\n\n  'wrong'= 3", 3),
        ('[vast]\napi_key_file = "a" # """\n[timing]\nwrong = 3', 4),
    ]:
        assert f"{PATH}:{line}: " in str(refusal(text)), text


def test_what_only_looks_like_a_key_inside_a_text_is_passed_over() -> None:
    for fence in ("'''", '"""'):
        text = f"[vast]\nurl = {fence}\n[timing]\nwrong = 1{fence}\n[timing]\nwrong = 3\n"

        assert line_of(text, ("timing", "wrong")) == 6


def test_a_file_saved_by_windows_is_read(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(b"\xef\xbb\xbf[timing]\r\nsettle_s = 2\r\n")

    assert load(path, {}).value.timing.settle_s == 2


def test_text_in_another_encoding_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(b"[timing]\n# caf\xe9\n")

    with pytest.raises(ConfigError, match=r"config\.toml:2: not UTF-8"):
        load(path, {})


def test_a_directory_is_no_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not a file"):
        load(tmp_path, {})


def test_a_device_that_never_ends_is_no_configuration() -> None:
    with pytest.raises(ConfigError, match="not a file"):
        load(Path("/dev/zero"), {})


def test_an_unreadable_file_says_how_to_repair_it(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.touch(mode=0o000)

    with as_ordinary_user(), pytest.raises(ConfigError) as caught:
        load(path, {})

    assert "cannot be read: Permission denied" in str(caught.value)
    assert "chmod u+r" in caught.value.hint


def test_a_path_through_a_file_says_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(ConfigError, match="cannot be read: Not a directory"):
        load(tmp_path / "file" / "config.toml", {})


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused_and_nothing_else(text: str) -> None:
    try:
        outcome = str(read(text).path)
    except ConfigError as error:
        outcome = str(error)

    assert outcome.startswith(str(PATH))


_SCALARS = st.one_of(
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.lists(st.integers(), max_size=2),
)


@given(st.sampled_from(sorted(keys.all_keys())), _SCALARS)
def test_a_value_is_kept_exactly_or_refused(dotted: str, value: object) -> None:
    before = Config(path=PATH, state_dir=PATH)
    try:
        after = before.overlaid({dotted: value}, Origin.PROJECT)
    except ConfigError as error:
        after, refused = before, str(error)
    else:
        refused = ""

    assert dotted in refused or after.get(dotted) == value or "lease" in refused
    assert after.overlaid({dotted: after.get(dotted)}, Origin.PROJECT).value == after.value
