"""Our directories are those of the platform."""

from pathlib import Path

import platformdirs
import pytest

from vastd_protocol import paths


@pytest.mark.parametrize("xdg", [True, False])
def test_configuration_and_state_lie_where_the_platform_wants_them(
    xdg: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not xdg:
        monkeypatch.delenv("XDG_CONFIG_HOME")
        monkeypatch.delenv("XDG_STATE_HOME")

    assert paths.config_file() == Path(platformdirs.user_config_dir("vastd"), "config.toml")
    assert paths.state_dir() == Path(platformdirs.user_state_dir("vastd"))
