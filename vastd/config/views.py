"""The configuration as the wire shows it: every setting with value, origin, default and source.

The paths stand among the settings as `paths.…`, because users look for them there; they are
read-only, since the file that would set them is found by them.
"""

from collections.abc import Mapping
from typing import Final

from vastd.config import keys
from vastd.config.keys import Key, UnknownKey
from vastd.config.load import Config, Origin
from vastd.config.project import ProjectFile, Stated
from vastd.config.settings import Value
from vastd.errors import InvalidRequest
from vastd_protocol.methods.config import ConfigView, SettingView
from vastd_protocol.methods.config import Value as WireValue

# Read once: machines and connections under way depend on them.
FIXED_AT_START: Final = frozenset(
    {
        "vast.url",
        "defaults.ssh_key",
        "timing.ssh_connect_s",
        "websocket.port",
        "websocket.origins",
        *(key for key in keys.all_keys() if key.startswith("rates.")),
    }
)

PATH_SOURCES: Final[Mapping[str, tuple[str, str]]] = {
    "paths.config": ("VASTD_CONFIG", "your configuration directory; $VASTD_CONFIG overrides"),
    "paths.state": ("VASTD_STATE_DIR", "your state directory; $VASTD_STATE_DIR overrides"),
    "paths.socket": ("VASTD_SOCKET", "unset: the first usable runtime directory"),
}


def config_view(
    config: Config,
    environ: Mapping[str, str],
    key: str | None = None,
    *,
    started: Config | None = None,
    project: ProjectFile | None = None,
    profile: Stated | None = None,
) -> ConfigView:
    """Return all settings, those of one table, or one setting.

    `started` is what the daemon started with, `project` what lies under `config` already, `profile`
    the one in force, which may be told by the project's other files.

    Raises:
        InvalidRequest: `key` is neither a table nor a setting.
    """
    every = [
        *_path_views(config, environ),
        *(_view(config, k, started, project, profile) for k in keys.all_keys().values()),
    ]
    if key is not None:
        named = _find(key).dotted if key not in _groups() else key
        every = [view for view in every if named in (view.key, view.key.partition(".")[0])]
    said = project.path if project is not None else None
    return ConfigView(
        path=str(config.path), settings=every, project_path=None if said is None else str(said)
    )


def setting_view(config: Config, key: str, *, started: Config | None = None) -> SettingView:
    """Return one setting, by its dotted key or its bare name where that is unique.

    Raises:
        InvalidRequest: there is no such setting.
    """
    return _view(config, _find(key), started)


def _find(typed: str) -> Key:
    try:
        return keys.find(typed)
    except UnknownKey as exc:
        raise InvalidRequest(str(exc), hint=exc.hint) from exc


def _groups() -> frozenset[str]:
    """Return the words that `config_view` takes besides settings: tables and paths."""
    return frozenset({*keys.tables(), "paths", *PATH_SOURCES})


def _view(
    config: Config,
    key: Key,
    started: Config | None = None,
    project: ProjectFile | None = None,
    profile: Stated | None = None,
) -> SettingView:
    origin = config.origin(key.dotted)
    value, where = _flat(config.get(key.dotted)), None
    if key.dotted == "defaults.profile" and profile is not None:
        value, where = profile.profile, profile.source
        origin = profile.origin or origin
    elif origin is Origin.PROJECT and project is not None:
        where = project.where(key.dotted)
    late = key.dotted in FIXED_AT_START and started is not None
    now = started.get(key.dotted) if late and started is not None else None
    waits = late and now != config.get(key.dotted)
    return SettingView(
        key=key.dotted,
        value=value,
        origin=origin,
        default=_flat(key.default),
        source=key.source,
        where=where if where != "default" else None,
        note="takes effect at the next start of vastd" if waits else None,
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
