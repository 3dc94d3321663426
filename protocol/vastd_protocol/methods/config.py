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
    where: str | None = None  # which file and line of the project said so
    note: str | None = None  # what to know, as when it counts only from the next start on


class ChangedView(SettingView, frozen=True, kw_only=True):
    """What was set, as it is in force now."""

    also: list[SettingView] = field(default_factory=list)  # the further ones


class ConfigGetParams(Params, frozen=True, kw_only=True):
    """`key` narrows to one setting or one table; with `project` (an absolute path) the values are
    those that calls from that directory get."""

    key: str | None = None
    project: str | None = None


class ConfigView(View, frozen=True, kw_only=True):
    """Settings by key. `project_path` is the file in which the project sets its own, or null."""

    path: str
    settings: list[SettingView] = field(default_factory=list)
    project_path: str | None = None


class ConfigSetParams(Mutation, frozen=True, kw_only=True):
    """Write settings to the configuration file, all or none; comments in it are kept."""

    key: str
    value: Value  # null removes it, so that the default counts again
    also: dict[str, Value] = field(default_factory=dict)  # further ones, by key


GET = Method("config.get", ConfigGetParams, ConfigView, "Return settings and their origin")
SET = Method("config.set", ConfigSetParams, ChangedView, "Change settings", mutates=True)

METHODS = (GET, SET)
