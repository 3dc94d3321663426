"""Every method has a request and a full answer on file, which both ends still read the same.

After a change of the table: `python tests/protocol/make_golden.py`, and read the difference.
"""

import json
from pathlib import Path

import msgspec
import pytest

from vastd_protocol import envelope
from vastd_protocol.methods import every, find

FOLDER = Path(__file__).with_name("golden")
FILES = {path.stem: path for path in FOLDER.glob("*.json")}


def test_every_method_has_a_golden_file_and_none_is_left_over():
    assert FILES.keys() == {row.name for row in every()}


@pytest.mark.parametrize("name", sorted(FILES))
def test_request_and_answer_come_back_as_they_are_on_file(name):
    row = find(name)
    assert row is not None
    golden = json.loads(FILES[name].read_text(encoding="utf-8"))

    request = envelope.decode(envelope.encode(golden["request"]), type=envelope.Request)
    params = msgspec.json.decode(request.params, type=row.params)
    sent = envelope.request(request.id, request.method, envelope.encode(params))
    reply = envelope.decode(envelope.encode(golden["reply"]), type=envelope.Reply)
    result = msgspec.json.decode(reply.result, type=row.result)
    answered = envelope.result(reply.id, envelope.encode(result))

    assert json.loads(sent) == golden["request"]
    assert json.loads(answered) == golden["reply"]


@pytest.mark.parametrize("name", sorted(FILES))
def test_the_file_shows_every_field_of_the_parameters(name):
    golden = json.loads(FILES[name].read_text(encoding="utf-8"))
    fields = {field.encode_name for field in msgspec.structs.fields(find(name).params)}

    assert golden["request"]["params"].keys() == fields


@pytest.mark.parametrize("name", sorted(FILES))
def test_the_file_shows_no_unknown_values(name):
    """A null tells a reader nothing; only the free-form `data` of an event may hold one."""

    def nulls(node, path=""):
        if node is None:
            yield path
        elif isinstance(node, dict):
            for key, value in node.items():
                yield from nulls(value, f"{path}.{key}")
        elif isinstance(node, list):
            for value in node:
                yield from nulls(value, path)

    golden = json.loads(FILES[name].read_text(encoding="utf-8"))
    assert [path for path in nulls(golden) if ".data." not in path] == []


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_field_from_the_future_does_not_break_an_answer(name):
    """Results grow by optional fields: an older client must read them."""
    golden = json.loads(FILES[name].read_text(encoding="utf-8"))
    newer = golden["reply"]["result"] | {"field_of_tomorrow": [1, {"x": None}]}

    result = msgspec.json.decode(envelope.encode(newer), type=find(name).result)

    old = msgspec.to_builtins(result)
    old.pop("field_of_tomorrow", None)  # `rpc.discover` is a plain object
    assert old == golden["reply"]["result"]
