"""The document of `rpc.discover`."""

import json

from vastd.rpc.openrpc import document
from vastd_protocol.methods import every


def references(node):
    if isinstance(node, dict):
        if "$ref" in node:
            yield node["$ref"]
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def test_the_document_has_what_openrpc_demands():
    made = json.loads(json.dumps(document(every())))

    assert made["openrpc"].startswith("1.")
    assert made["info"].keys() >= {"title", "version"}
    names = [method["name"] for method in made["methods"]]
    assert names == sorted(set(names)) == [row.name for row in every()]
    for method in made["methods"]:
        assert method["result"].keys() >= {"name", "schema"}
        assert method["paramStructure"] == "by-name"
        required = [param["required"] for param in method["params"]]
        assert required == sorted(required, reverse=True)
        for param in method["params"]:
            assert param.keys() == {"name", "required", "schema"}


def test_every_reference_resolves():
    made = document(every())

    for reference in references(made):
        node = made
        for step in reference.removeprefix("#/").split("/"):
            assert step in node, reference
            node = node[step]


def test_required_parameters_come_first_and_are_marked():
    made = {method["name"]: method for method in document(every())["methods"]}
    params = made["job.submit"]["params"]

    assert {param["name"] for param in params if param["required"]} == {"command", "project"}
    assert [param["name"] for param in params][:2] == ["command", "project"]
    assert made["daemon.status"]["params"] == []
    assert made["job.submit"]["x-mutates"] is True
