"""The renter's templates: named images with their settings, as Vast keeps them."""

import hashlib
import shlex
from typing import Final

import msgspec

from vastd.simulator.refusals import MarketRefused

JsonObject = dict[str, object]

FIRST_ID: Final = 1
DIRECT: Final = "ssh_direc ssh_proxy"  # VAST_API 3.2
FLAGS: Final = frozenset({"-p", "-h", "-v"})  # VAST_API 3.1: they come as keys of `env`
# What makes a template the template it is; the rest is bookkeeping (VAST_API 11).
CONTENT: Final = (
    "name", "image", "tag", "href", "repo", "env", "onstart", "jup_direct", "ssh_direct",
    "use_jupyter_lab", "runtype", "use_ssh", "jupyter_dir", "extra_filters",
    "recommended_disk_space", "readme", "readme_visible", "desc", "private", "args_str",
    "volume_info",
)  # fmt: skip


class Templates:
    """All templates of one account, by id."""

    def __init__(self) -> None:
        self._rows: dict[int, JsonObject] = {}
        self._last_id = FIRST_ID - 1

    def all(self) -> list[JsonObject]:
        """Return every row, oldest first."""
        return list(self._rows.values())

    def create(self, body: JsonObject) -> JsonObject:
        """Keep a template; one of the same content is returned instead of made again.

        Raises:
            MarketRefused: it has no name or no image.
        """
        row = _content(body)
        for known in self._rows.values():
            if known["hash_id"] == row["hash_id"]:
                return known
        self._last_id += 1
        row["id"] = self._last_id
        self._rows[self._last_id] = row
        return row

    def update(self, body: JsonObject) -> JsonObject:
        """Replace the content; the id stays, the hash changes.

        Raises:
            MarketRefused: there is no such template, or the content is not usable.
        """
        template_id = self._id(body.get("id"), body.get("hash_id"))
        self._rows[template_id] = {**_content(body), "id": template_id}
        return self._rows[template_id]

    def delete(self, body: JsonObject) -> None:
        """Forget a template.

        Raises:
            MarketRefused: there is no such template.
        """
        del self._rows[self._id(body.get("template_id"), body.get("hash_id"))]

    def fill(self, hash_id: str, body: JsonObject) -> JsonObject:
        """Return a create's body completed from a template; what it names itself stays.

        Raises:
            MarketRefused: there is no such template.
        """
        row = self._rows[self._id(None, hash_id)]
        image = str(row["image"])
        given = {name: value for name, value in body.items() if value is not None}
        own_env = given.get("env")
        return {
            "image": image if not row["tag"] else f"{image}:{row['tag']}",
            "onstart": row["onstart"],
            "runtype": DIRECT if row["ssh_direct"] else row["runtype"],
            "args_str": row["args_str"],
            **given,
            "env": {**_env(row["env"]), **(own_env if isinstance(own_env, dict) else {})},
        }

    def _id(self, template_id: object, hash_id: object) -> int:
        for known, row in self._rows.items():
            if known == template_id or (template_id is None and row["hash_id"] == hash_id):
                return known
        raise MarketRefused(404, "not_found", "No such template.")


def _content(body: JsonObject) -> JsonObject:
    if not body.get("name") or not body.get("image"):
        raise MarketRefused(400, "invalid_args", "a template needs a name and an image")
    row = {name: body.get(name) for name in CONTENT}
    digest = hashlib.sha256(msgspec.json.encode(row, order="sorted")).hexdigest()
    return {**row, "hash_id": digest[:32]}


def _env(flags: object) -> JsonObject:
    """Return the object form of a template's environment, which is a string of docker flags."""
    env: JsonObject = {}
    words = iter(shlex.split(flags) if isinstance(flags, str) else [])
    for word in words:
        value = next(words, "") if word in (*FLAGS, "-e") else ""
        if word == "-e":
            name, _, text = value.partition("=")
            env[name] = text
        elif word == "-h":
            env["-h"] = value
        elif word in FLAGS:
            env[f"{word} {value}"] = "1"
    return env
