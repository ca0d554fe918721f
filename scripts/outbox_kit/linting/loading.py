"""Reads pipelines for the rules: without a secret, without a running stack, and past the first broken file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from outbox_kit.errors import ConfigurationError
from outbox_kit.linting.engine import RULES, lint
from outbox_kit.linting.lint_input import Target
from outbox_kit.linting.rule import Rule
from outbox_kit.linting.rules.schemas import schema_problem
from outbox_kit.linting.rules.secrets import literals
from outbox_kit.pipeline import (
    Environment,
    Overrides,
    Pipeline,
    load_pipeline,
    project_folder,
    read_lock,
    render_connector,
)
from outbox_kit.pipeline.layered_values import Literal, Location, Values
from outbox_kit.pipeline.loading import environment_values, with_paths
from outbox_kit.pipeline.validation_errors import failure, validation_problems
from outbox_kit.rules import Check, Severity, Status

EXPRESSION = re.compile(r"\{\{\s*(env|stack)\.(\w+)\s*\}\}")
# What an expression without a value stands for: the first that the key accepts.
STAND_INS = ("unset", "1", "http://unset.invalid", "${env:UNSET}")
STACK_HOST = "127.0.0.1"  # the embedded stack runs on this machine
FILES = "lint.files"


def lint_files(
    files: Iterable[Path], environment: str, overrides: Overrides | None = None, more: Iterable[Rule] = ()
) -> list[Check]:
    """`lint` of pipeline files, all in one environment, by further rules too.

    A file that cannot be read is a failed check; where none can be, no rule is judged.
    """
    targets, unread = read_targets(files, environment, overrides)
    checks = lint(targets, (*RULES, *more)) if targets else []
    if unread:
        checks = [check for check in checks if check.id != FILES or check.status is not Status.PASS]
    return [*unread, *checks]


def read_targets(
    files: Iterable[Path], environment: str, overrides: Overrides | None = None
) -> tuple[list[Target], list[Check]]:
    """What can be read, and a failed check for each file that cannot."""
    targets: list[Target] = []
    unread: list[Check] = []
    for path in dict.fromkeys(Path(os.path.relpath(file.resolve())) for file in files):
        try:
            targets.append(read_target(path, environment, overrides))
        except ConfigurationError as error:
            expected = "a file that can be read"
            unread.append(Check(FILES, Status.FAIL, error.message, expected, error.hint, Severity.ERROR))
    return targets, list(dict.fromkeys(unread))


def read_target(pipeline_file: Path, environment: str, overrides: Overrides | None = None) -> Target:
    """One pipeline in one environment. Raises ConfigurationError for a file that cannot be read."""
    overrides = overrides or Overrides()
    pipeline = load_pipeline(pipeline_file, environment, overrides)
    found, secrets = read_environment(environment, pipeline_file, overrides)
    config, problem = _rendered(pipeline, found, pipeline_file)
    return Target(pipeline, found, config, str(pipeline_file), secrets, problem)


def _rendered(
    pipeline: Pipeline, environment: Environment, pipeline_file: Path
) -> tuple[dict[str, str], tuple[str, str] | None]:
    """The config; without one the problem, unless it is a schema, which has a rule of its own."""
    if any(schema_problem(aggregate) for aggregate in pipeline.routed.values()):
        return {}, None
    lock = environment.lock_folder / f"{pipeline.name}.{environment.name}.lock.json"
    try:
        folder = pipeline_file.resolve().parent / "templates"
        return render_connector(pipeline, environment, read_lock(lock), folder), None
    except ConfigurationError as error:
        return {}, (error.message, error.hint)


def read_environment(
    name: str, pipeline_file: Path, overrides: Overrides | None = None
) -> tuple[Environment, tuple[str, ...]]:
    """An environment file with something in place of every value that is not there, and its literal secrets.

    Raises ConfigurationError.
    """
    values = environment_values(name, pipeline_file, overrides or Overrides())
    environment = with_paths(_validated(values), values, project_folder(pipeline_file), ())
    return environment, literals(values.data)


def _validated(values: Values) -> Environment:
    """Try the next stand-in wherever one was not accepted."""
    tried: dict[Location, int] = {}
    for last in (stand_in == STAND_INS[-1] for stand_in in STAND_INS):
        try:
            return Environment.model_validate(_filled(values.data, (), tried))
        except ValidationError as error:
            found = {_location(values.data, problem["loc"]) for problem in error.errors()}
            if last or not all(_has_expression(values, location) for location in found):
                raise failure(validation_problems(Environment, values, error)) from None
            tried |= {location: tried.get(location, 0) + 1 for location in found}
    raise AssertionError("the last stand-in returns or raises")


def _filled(node: Any, where: Location, tried: Mapping[Location, int]) -> Any:  # noqa: ANN401 - YAML
    if isinstance(node, dict):
        return {key: _filled(item, (*where, key), tried) for key, item in node.items()}
    if isinstance(node, list):
        return [_filled(item, (*where, index), tried) for index, item in enumerate(node)]
    if not isinstance(node, str) or isinstance(node, Literal):
        return node
    stand_in = STAND_INS[tried.get(where, 0)]
    return EXPRESSION.sub(lambda match: _value(match, stand_in), node)


def _value(match: re.Match[str], stand_in: str) -> str:
    """An environment variable where it is set; a stand-in otherwise."""
    if match[1] == "stack":
        return STACK_HOST if stand_in == STAND_INS[0] else stand_in
    return os.environ.get(match[2]) or stand_in


def _location(data: Any, location: Location) -> Location:  # noqa: ANN401 - YAML
    """The place in the file: the model's own has the kind of a target in it besides."""
    found: list[int | str] = []
    node = data
    for part in location:
        try:
            node = node[part]
        except (KeyError, IndexError, TypeError):
            continue
        found.append(part)
    return tuple(found)


def _has_expression(values: Values, location: Location) -> bool:
    found = values.at(location)
    return isinstance(found, str) and EXPRESSION.search(found) is not None
