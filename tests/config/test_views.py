"""The configuration on the wire."""

from pathlib import Path

import msgspec
import pytest

from vastd.config.load import parse
from vastd.config.views import config_view, setting_view
from vastd.errors import InvalidRequest
from vastd_protocol.methods.config import ConfigView, SettingView

PATH = Path("/etc/x/config.toml")
ENVIRON = {"VAST_URL": "http://127.0.0.1:1", "VASTD_STATE_DIR": "/s"}
CONFIG = parse(
    "[timing]\nsettle_s = 1\n[websocket]\norigins=['http://a','http://b']", PATH, ENVIRON
)


def test_a_setting_shows_value_origin_default_and_source() -> None:
    assert setting_view(CONFIG, "settle_s") == SettingView(
        key="timing.settle_s",
        value=1.0,
        origin="file",
        default=30.0,
        source="a listing may lag behind a create or destroy; guess",
    )
    assert setting_view(CONFIG, "vast.url").origin == "environment"
    assert setting_view(CONFIG, "websocket.origins").value == "http://a, http://b"


def test_all_settings_and_paths_survive_the_wire() -> None:
    view = config_view(CONFIG, ENVIRON)

    assert msgspec.json.decode(msgspec.json.encode(view), type=ConfigView) == view
    assert view.path == str(PATH)
    shown = {setting.key: setting for setting in view.settings}
    assert len(shown) == len(view.settings)
    assert (shown["paths.state"].value, shown["paths.state"].origin) == ("/s", "environment")
    assert (shown["paths.config"].value, shown["paths.config"].origin) == (str(PATH), "default")


def test_a_table_or_one_setting_can_be_asked_for() -> None:
    assert {s.key for s in config_view(CONFIG, {}, "websocket").settings} == {
        "websocket.port",
        "websocket.origins",
    }
    assert [s.key for s in config_view(CONFIG, {}, "timing.grace_s").settings] == ["timing.grace_s"]
    assert [s.key for s in config_view(CONFIG, {}, "grace_s").settings] == ["timing.grace_s"]


def test_an_unknown_key_is_refused_with_a_near_one() -> None:
    with pytest.raises(InvalidRequest) as caught:
        config_view(CONFIG, {}, "timing.grace")

    assert caught.value.hint == "did you mean 'timing.grace_s'?"
