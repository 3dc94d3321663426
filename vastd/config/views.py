"""The configuration as the wire shows it: every setting with value, origin, default and source.

The paths stand among the settings as `paths.…`, because users look for them there; they are
read-only, since the file that would set them is found by them.
"""

from collections.abc import Mapping
from typing import Final

from vastd.config import keys
from vastd.config.keys import Key, UnknownKey
from vastd.config.load import Config, Origin
from vastd.config.settings import Value
from vastd.errors import InvalidRequest
from vastd_protocol.methods.config import ConfigView, SettingView
from vastd_protocol.methods.config import Value as WireValue

PATH_SOURCES: Final[Mapping[str, tuple[str, str]]] = {
    "paths.config": ("VASTD_CONFIG", "your configuration directory; $VASTD_CONFIG overrides"),
    "paths.state": ("VASTD_STATE_DIR", "your state directory; $VASTD_STATE_DIR overrides"),
    "paths.socket": ("VASTD_SOCKET", "unset: the first usable runtime directory"),
}


def config_view(config: Config, environ: Mapping[str, str], key: str | None = None) -> ConfigView:
    """Return all settings, those of one table, or one setting.

    Raises:
        InvalidRequest: `key` is neither a table nor a setting.
    """
    every = [*_path_views(config, environ), *(_view(config, k) for k in keys.all_keys().values())]
    if key is not None:
        every = [view for view in every if key in (view.key, view.key.partition(".")[0])] or [
            setting_view(config, key)
        ]
    return ConfigView(path=str(config.path), settings=every)


def setting_view(config: Config, key: str) -> SettingView:
    """Return one setting, by its dotted key or its bare name where that is unique.

    Raises:
        InvalidRequest: there is no such setting.
    """
    try:
        return _view(config, keys.find(key))
    except UnknownKey as exc:
        raise InvalidRequest(str(exc), hint=exc.hint) from exc


def _view(config: Config, key: Key) -> SettingView:
    return SettingView(
        key=key.dotted,
        value=_flat(config.get(key.dotted)),
        origin=config.origin(key.dotted),
        default=_flat(key.default),
        source=key.source,
    )


def _path_views(config: Config, environ: Mapping[str, str]) -> list[SettingView]:
    values = {
        "paths.config": str(config.path),
        "paths.state": str(config.state_dir),
        "paths.socket": environ.get("VASTD_SOCKET") or None,
    }
    return [
        SettingView(
            key=key,
            value=values[key],
            origin=Origin.ENVIRONMENT if environ.get(variable) else Origin.DEFAULT,
            default=None,
            source=source,
        )
        for key, (variable, source) in PATH_SOURCES.items()
    ]


def _flat(value: Value) -> WireValue:
    return ", ".join(value) if isinstance(value, list) else value
