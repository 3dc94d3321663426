"""The repository as text: its modules, tests and documents, for tests of the rules they keep."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("protocol/vastd_protocol", "vastctl", "vastd")


@cache
def modules() -> tuple[Path, ...]:
    """Return every module of the product, relative to the root, by directory and name."""
    found = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    paths = (path.relative_to(ROOT) for path in found)
    return tuple(sorted(paths, key=lambda path: (path.parent, path.name)))


@cache
def modules_of_tests() -> tuple[Path, ...]:
    """Return every Python file below `tests/`, relative to the root, by path."""
    return tuple(sorted(p.relative_to(ROOT) for p in (ROOT / "tests").rglob("*.py")))


@cache
def tree_of(path: Path) -> ast.Module:
    """Return the syntax tree of a module given relative to the root."""
    return ast.parse((ROOT / path).read_bytes(), str(path))


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """Return every node of a module's syntax tree: many rules look at all of them."""
    return tuple(ast.walk(tree_of(path)))


def imports_of(path: Path) -> Iterator[str]:
    """Yield the dotted name of everything a module imports, wherever the import stands."""
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def first_line(path: Path) -> str:
    """Return the first line of a module's docstring, or an empty string."""
    docstring = ast.get_docstring(tree_of(path)) or ""
    return docstring.partition("\n")[0].strip()


def summary(path: Path) -> str:
    """Return the first sentence of a module's docstring, joined when it spans lines."""
    docstring = ast.get_docstring(tree_of(path)) or ""
    return " ".join(docstring.partition("\n\n")[0].split())


def marks_of(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> Iterator[ast.expr]:
    """Yield the pytest marks a test is decorated with, called or not."""
    yield from (mark for mark in node.decorator_list if _mark_name(mark))


def mark_name(mark: ast.expr) -> str:
    """Return `ssh` for `@pytest.mark.ssh` or `@pytest.mark.ssh(…)`."""
    return _mark_name(mark)


def _mark_name(mark: ast.expr) -> str:
    target = mark.func if isinstance(mark, ast.Call) else mark
    match target:
        case ast.Attribute(
            value=ast.Attribute(attr="mark", value=ast.Name(id="pytest")), attr=name
        ):
            return name
        case _:
            return ""
