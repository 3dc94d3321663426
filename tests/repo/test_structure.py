"""The rules of the house that a program can check."""

import ast
import tomllib
from collections import Counter
from pathlib import Path

from support.source_tree import (
    ROOT,
    first_line,
    imports_of,
    mark_name,
    marks_of,
    modules,
    modules_of_tests,
    nodes_of,
    tree_of,
)
from vastd_protocol.version import VASTD_VERSION

MAX_LINES = 400  # STYLE 2
MAX_FUNCTION_LINES = 40  # STYLE 2
FORBIDDEN_NAMES = {"utils", "util", "common", "misc", "helpers", "helper"}  # STYLE 3
SLOW_MARKS = {"sim", "ssh", "e2e", "editors"}
# asyncio lives where asyncssh meets trio: one module of the daemon, one of the simulator.
ASYNCIO_HOMES = ("vastd/ssh", "vastd/simulator")


def requirement_ids() -> set[str]:
    return set((ROOT / "tests/data/requirement_ids.txt").read_text().split())


def test_a_module_says_first_what_it_owns() -> None:
    silent = [str(path) for path in modules() if not (ROOT / path).read_text().startswith('"""')]

    assert silent == []
    assert [str(path) for path in modules() if not first_line(path)] == []


def test_modules_and_functions_stay_short() -> None:
    long = [str(path) for path in modules() if (ROOT / path).read_text().count("\n") > MAX_LINES]
    longer = [
        f"{path}:{node.lineno} {node.name}"
        for path in modules()
        for node in nodes_of(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and _length(node) > MAX_FUNCTION_LINES
    ]

    assert long == []
    assert longer == []


def test_no_module_is_a_drawer_for_odds_and_ends() -> None:
    stems = {path.stem for path in (*modules(), *modules_of_tests())}

    assert not stems & FORBIDDEN_NAMES


def test_asyncio_stays_in_the_two_modules_that_need_it() -> None:
    users = [p for p in modules() if any(n.split(".")[0] == "asyncio" for n in imports_of(p))]
    homes = [home for p in users for home in ASYNCIO_HOMES if p.is_relative_to(home)]

    assert len(homes) == len(users), f"asyncio outside of {ASYNCIO_HOMES}: {users}"
    assert max(Counter(homes).values(), default=0) <= 1, f"more than one module: {users}"


def test_threads_are_never_used() -> None:
    forbidden = {"threading", "concurrent.futures", "trio.to_thread", "multiprocessing"}
    users = [(str(p), n) for p in modules() for n in imports_of(p) if n in forbidden]
    calls = [str(p) for p in modules() if "to_thread.run_sync" in (ROOT / p).read_text()]

    assert users == []
    assert calls == []


def test_source_roots_are_not_packages() -> None:
    assert not [
        d for d in (".", "protocol", "systemd", "tests") if (ROOT / d / "__init__.py").exists()
    ]
    assert not list((ROOT / "tests").rglob("__init__.py"))


def test_test_modules_have_names_of_their_own() -> None:
    names = Counter(p.name for p in modules_of_tests() if p.name.startswith("test_"))

    assert [name for name, count in names.items() if count > 1] == []


def test_fast_tests_never_sleep_in_real_time() -> None:
    sleepers = [f"{p}:{call.lineno}" for p in modules_of_tests() for call in _real_sleeps(p)]

    assert sleepers == []


def test_every_test_asserts_something() -> None:
    assert [test for path in modules_of_tests() for test in _idle_tests(path)] == []


def test_marks_name_requirements_that_exist() -> None:
    known = requirement_ids()
    wrong = [
        f"{path}: {argument}"
        for path in modules_of_tests()
        for node in nodes_of(path)
        if isinstance(node, ast.Call) and mark_name(node) == "req"
        for argument in ([getattr(a, "value", "?") for a in node.args] or ["no id"])
        if argument not in known
    ]

    assert len(known) == 292
    assert wrong == []


def test_the_version_is_the_same_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert project["version"] == VASTD_VERSION


def test_every_dependency_has_its_reason_in_the_readme() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {d.partition(">=")[0].partition("[")[0] for d in project["dependencies"]}
    readme = (ROOT / "README.md").read_text()

    assert {name for name in names if f"| `{name}` |" not in readme} == set()


def test_scripts_of_the_machine_can_be_run() -> None:
    for script in (".ci/run", ".ci/tools"):
        assert (ROOT / script).stat().st_mode & 0o111 == 0o111
        assert (ROOT / script).read_text().startswith("#!")


def _length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the lines of the body; a table or call that the formatter spreads counts as one."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    spread = sum(
        (node.end_lineno or node.lineno) - node.lineno
        for statement in body
        for node in ast.walk(statement)
        if isinstance(node, ast.stmt) and not hasattr(node, "body") and not hasattr(node, "cases")
    )
    return (function.end_lineno or 0) - body[0].lineno + 1 - spread if body else 0


def _real_sleeps(path: Path) -> list[ast.Call]:
    """Return the calls of `time.sleep` that a test without a slow mark could reach."""
    tree = tree_of(path)
    if path.name.startswith("test_") and SLOW_MARKS & _module_marks(tree):
        return []
    slow = {
        call
        for node in nodes_of(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and SLOW_MARKS & {mark_name(mark) for mark in marks_of(node)}
        for call in ast.walk(node)
    }
    return [
        node
        for node in nodes_of(path)
        if isinstance(node, ast.Call) and _is_sleep(node.func) and node not in slow
    ]


def _is_sleep(called: ast.expr) -> bool:
    match called:
        case ast.Attribute(value=ast.Name(id="time"), attr="sleep"):
            return True
        case _:
            return False


def _idle_tests(path: Path) -> list[str]:
    """Return the tests in `path` that neither assert nor expect an exception."""
    return [
        f"{path}::{node.name}"
        for node in nodes_of(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and not any(map(_asserts, ast.walk(node)))
    ]


def _asserts(node: ast.AST) -> bool:
    if isinstance(node, ast.Assert):
        return True
    if not isinstance(node, ast.Call):
        return False
    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
    return name in {"raises", "fail", "warns"} or name.startswith(("assert_", "check_", "expect_"))


def _module_marks(tree: ast.Module) -> set[str]:
    """Return the marks in a module's `pytestmark`."""
    return {
        mark_name(node)
        for statement in tree.body
        if isinstance(statement, ast.Assign)
        and any(ast.unparse(target) == "pytestmark" for target in statement.targets)
        for node in ast.walk(statement.value)
        if isinstance(node, ast.expr)
    }
