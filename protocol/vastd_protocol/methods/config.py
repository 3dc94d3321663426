"""`config.get`, `config.set`: every setting with its value and where it came from."""

from msgspec import field

from vastd_protocol.method import Method, Mutation, Params, View

Value = str | int | float | bool | None


class SettingView(View, frozen=True, kw_only=True):
    """One setting. `origin` is `default`, `file`, `environment` or `project`."""

    key: str  # dotted, as in `timing.settle_s`
    value: Value
    origin: str
    default: Value
    source: str = ""  # why the default is what it is


class ConfigGetParams(Params, frozen=True, kw_only=True):
    """`key` narrows to one setting or one table."""

    key: str | None = None


class ConfigView(View, frozen=True, kw_only=True):
    """Settings by key."""

    path: str
    settings: list[SettingView] = field(default_factory=list)


class ConfigSetParams(Mutation, frozen=True, kw_only=True):
    """Write one setting to the configuration file; comments in it are kept."""

    key: str
    value: Value  # null removes it, so that the default counts again


GET = Method("config.get", ConfigGetParams, ConfigView, "Return settings and their origin")
SET = Method("config.set", ConfigSetParams, SettingView, "Change one setting", mutates=True)

METHODS = (GET, SET)
