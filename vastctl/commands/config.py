"""`config get|set|path`: settings with their value and where it comes from."""

import os
from argparse import ArgumentParser
from typing import Final

from msgspec import DecodeError
from msgspec.json import decode

from vastctl.caps import confirm_caps
from vastctl.client import new_request_id
from vastctl.context import Context
from vastctl.errors import UsageError
from vastctl.table import table
from vastctl.values import once
from vastd_protocol import paths
from vastd_protocol.errors import ExitCode
from vastd_protocol.methods import config
from vastd_protocol.methods.config import SettingView, Value

ACTIONS: Final = {
    "get": "print settings as they are in this project: value, who set it, default",
    "set": "change settings in the file; `KEY=null` makes the default count again",
    "path": "print where the file is, and the project's own",
}
MAX_PROJECT_BYTES: Final = 1 << 20  # vastd reads no more of a project's file
EXAMPLES: Final = """\
  vastctl config get budget
  vastctl config get --explain defaults.disk_gb
  vastctl config set budget.per_day_usd=40
  vastctl config path"""


def arguments(parser: ArgumentParser) -> None:
    action = parser.get_default("action")
    if action == "get":
        parser.add_argument(
            "key", metavar="KEY", nargs="?", help="as in timing.settle_s, or budget"
        )
        parser.add_argument("--explain", action="store_true", help="why each default is what it is")
    elif action == "set":
        parser.add_argument("settings", metavar="KEY=VALUE", nargs="+")


def run(ctx: Context) -> int:
    return {"get": _get, "set": _set, "path": _path}[ctx.args.action](ctx)


def _get(ctx: Context) -> int:
    wish = config.ConfigGetParams(key=ctx.args.key, project=ctx.project)
    body = ctx.client.raw(config.GET, wish)
    if ctx.json:
        ctx.emit(body)
        return ExitCode.OK
    view = ctx.client.view(config.GET, body)
    header = ("KEY", "VALUE", "FROM", "DEFAULT", "WHY THAT DEFAULT")
    columns = len(header) if ctx.args.explain else len(header) - 1
    rows = [_row(setting)[:columns] for setting in view.settings]
    for line in table(header[:columns], rows, columns=ctx.screen.out_columns):
        ctx.screen.out(line)
    for setting in view.settings:
        if setting.note:
            ctx.screen.note(f"{setting.key} {setting.note}")
    if view.project_path:
        ctx.screen.note(f"the project's own settings are in {view.project_path}")
    return ExitCode.OK


def _row(setting: SettingView) -> tuple[str, ...]:
    said = setting.where or ""
    # The source of a profile begins with the word itself: "project (it has .aris)".
    plain = said.startswith(setting.origin)
    origin = said if plain else f"{setting.origin} ({said})" if said else setting.origin
    return (setting.key, _text(setting.value), origin, _text(setting.default), setting.source)


def _text(value: Value) -> str:
    if value is None:
        return "-"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _set(ctx: Context) -> int:
    changes = once(_change(text) for text in ctx.args.settings)
    confirm_caps(ctx, changes)
    (key, value), *others = changes.items()
    wish = config.ConfigSetParams(
        key=key, value=value, also=dict(others), request_id=new_request_id()
    )
    body = ctx.client.raw(config.SET, wish)
    first = ctx.client.view(config.SET, body)
    alone = {name: getattr(first, name) for name in SettingView.__struct_fields__}
    settings = [SettingView(**alone), *first.also]
    if ctx.json and not others:
        ctx.emit(body)
    elif ctx.json:
        ctx.emit_own({"settings": settings})
    for setting in () if ctx.json else settings:
        ctx.screen.step("info", f"{setting.key} = {_text(setting.value)} ({setting.origin})")
        if setting.note:
            ctx.screen.step("warning", f"{setting.key} {setting.note}")
    return ExitCode.OK


def _change(text: str) -> tuple[str, Value]:
    key, equals, raw = text.partition("=")
    if not equals or not key.strip():
        raise UsageError(
            f"{text!r} is no setting", hint="write it as KEY=VALUE: budget.per_day_usd=40"
        )
    try:
        value = decode(raw.strip().encode())
    except DecodeError:
        value = raw.strip()  # a bare word is a text
    if not isinstance(value, (str, int, float, bool, type(None))):
        raise UsageError(f"the value of {key!r} must be a number, a word, true or false")
    return key.strip(), value


def _path(ctx: Context) -> int:
    """Print where the files are. vastd is not asked: who looks for them may have broken them."""
    place, mine = str(paths.config_file()), _project_files(ctx.project)
    if ctx.json:
        ctx.emit_own({"path": place, "project_path": mine[0] if len(mine) == 1 else None})
    else:
        ctx.screen.out(place)
        for path in mine:
            ctx.screen.note(f"the project's own settings are in {path}")
    if len(mine) > 1:
        ctx.screen.step("warning", "both set defaults, and vastd takes neither: keep one of them")
    return ExitCode.OK


def _project_files(project: str) -> list[str]:
    """Return the files in which the project speaks to vastd; more than one is a mistake."""
    own, shared = (os.path.join(project, name) for name in ("vastd.toml", "pyproject.toml"))
    return [path for path, speaks in ((own, os.path.lexists), (shared, _speaks)) if speaks(path)]


def _speaks(pyproject: str) -> bool:
    """Return whether a `pyproject.toml` has our table, as far as it can be read."""
    import tomllib  # heavy, and only needed here

    try:
        with open(pyproject, "rb") as file:
            text = file.read(MAX_PROJECT_BYTES)
        tool = tomllib.loads(text.decode("utf-8-sig")).get("tool")
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(tool, dict) and "vastd" in tool
