"""Each pipeline of the integration tests has its own name.

Tests share a stack, and a pipeline whose slot an earlier test dropped cannot be deployed again. Which tests share a
stack depends on pytest-xdist, so that only some runs would fail.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "integration"
FUNCTIONS = {"deploy", "deploy_once", "make_pipeline"}


def constants(tree: ast.Module) -> dict[str, str]:
    """Return the texts that a module assigns to names at its top level, also `A, B = "a", "b"`."""
    found: dict[str, str] = {}
    for statement in tree.body:
        if not isinstance(statement, ast.Assign):
            continue
        for target in statement.targets:
            pairs = [(target, statement.value)]
            if isinstance(target, ast.Tuple) and isinstance(statement.value, ast.Tuple):
                pairs = list(zip(target.elts, statement.value.elts, strict=True))
            for name, value in pairs:
                if isinstance(name, ast.Name) and isinstance(value, ast.Constant) and isinstance(value.value, str):
                    found[name.id] = value.value
    return found


def pipeline_names(tree: ast.Module) -> Iterator[str]:
    """Yield the name of each pipeline that a module deploys, if it is a text or a constant of the module."""
    known = constants(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS and node.args:
            name = node.args[0]
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                yield name.value
            elif isinstance(name, ast.Name) and name.id in known:
                yield known[name.id]


def test_each_pipeline_of_the_integration_tests_has_its_own_name() -> None:
    modules: dict[str, list[str]] = {}
    for path in sorted(FOLDER.rglob("*.py")):
        for name in pipeline_names(ast.parse(path.read_text(encoding="utf-8"))):
            modules.setdefault(name, []).append(str(path.relative_to(FOLDER)))
    assert len(modules) > 40, "the calls are not recognized"
    assert {name: paths for name, paths in modules.items() if len(paths) > 1} == {}
