"""Each pipeline of the integration tests has its own name.

Tests share a stack, and a pipeline whose slot an earlier test dropped cannot be deployed again. Which tests share a
stack depends on pytest-xdist, so only some runs would fail.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "integration"
FUNCTIONS = {"deploy", "deploy_once", "make_pipeline"}


def constants(tree: ast.Module) -> dict[str, str]:
    """Return the texts that a module assigns to names at its top level, including `A, B = "a", "b"`."""
    found: dict[str, str] = {}
    for statement in tree.body:
        if isinstance(statement, ast.Assign):
            target, value = statement.targets[0], statement.value
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            values = value.elts if isinstance(value, ast.Tuple) else [value] * len(names)
            pairs = zip(map(ast.unparse, names), values, strict=False)
            found |= {name: item.value for name, item in pairs if isinstance(item, ast.Constant)}
    return found


def pipeline_names(tree: ast.Module) -> Iterator[str]:
    """Yield the name of each pipeline that a module deploys, if the name is a text or a constant of the module."""
    known = constants(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in FUNCTIONS and node.args:
            name = node.args[0]
            value = name.value if isinstance(name, ast.Constant) else known.get(ast.unparse(name))
            if isinstance(value, str):
                yield value


def test_each_pipeline_of_the_integration_tests_has_its_own_name() -> None:
    modules: dict[str, list[str]] = {}
    for path in sorted(FOLDER.rglob("*.py")):
        for name in pipeline_names(ast.parse(path.read_text(encoding="utf-8"))):
            modules.setdefault(name, []).append(str(path.relative_to(FOLDER)))
    assert len(modules) > 40, "the calls are not recognized"
    assert {name: paths for name, paths in modules.items() if len(paths) > 1} == {}
