"""Loader of lint inputs: needs no secret and no running stack, and continues after an invalid file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from outbox_kit.errors import ConfigurationError
from outbox_kit.linting.lint_input import LintInput
from outbox_kit.linting.lint_rule import LintRule
from outbox_kit.linting.rule_catalogue import RULES, lint
from outbox_kit.linting.rules.schemas import schema_error
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
# Values of an expression whose variable is not set: the first that the key accepts is used.
STAND_INS = ("unset", "1", "http://unset.invalid", "${env:UNSET}")
STACK_HOST = "127.0.0.1"
FILES = "lint.files"


def lint_files(
    files: Iterable[Path], environment: str, overrides: Overrides | None = None, extra_rules: Iterable[LintRule] = ()
) -> list[Check]:
    """Lint pipeline files in one environment.

    A file that cannot be read is a failed check. If no file can be read, no rule is evaluated.
    """
    inputs: list[LintInput] = []
    errors: list[Check] = []
    for path in dict.fromkeys(Path(os.path.relpath(file.resolve())) for file in files):
        try:
            inputs.append(read_input(path, environment, overrides))
        except ConfigurationError as error:
            expected = "a file that can be read"
            errors.append(Check(FILES, Status.FAIL, error.message, expected, error.hint, Severity.ERROR))
    checks = lint(inputs, (*RULES, *extra_rules)) if inputs else []
    if errors:
        checks = [check for check in checks if check.id != FILES or check.status is not Status.PASS]
    return [*dict.fromkeys(errors), *checks]


def read_input(pipeline_file: Path, environment: str, overrides: Overrides | None = None) -> LintInput:
    """Return one pipeline in one environment. Raises ConfigurationError for a file that cannot be read."""
    overrides = overrides or Overrides()
    pipeline = load_pipeline(pipeline_file, environment, overrides)
    settings, secrets = read_environment(environment, pipeline_file, overrides)
    config, error = _rendered(pipeline, settings, pipeline_file)
    return LintInput(pipeline, settings, config, str(pipeline_file), secrets, error)


def _rendered(
    pipeline: Pipeline, environment: Environment, pipeline_file: Path
) -> tuple[dict[str, str], tuple[str, str] | None]:
    """Return the config, or the error in its place. An invalid schema is left to the rule `schema.file`."""
    if any(schema_error(aggregate) for aggregate in pipeline.routed.values()):
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
    """Return an environment with stand-ins, and the keys of its plain-text secrets. Raises ConfigurationError."""
    values = environment_values(name, pipeline_file, overrides or Overrides())
    environment = with_paths(_validated(values), values, project_folder(pipeline_file), ())
    return environment, literals(values.data)


def _validated(values: Values) -> Environment:
    """Validate the file; wherever a stand-in is rejected, try the next."""
    attempts: dict[Location, int] = {}
    for stand_in in STAND_INS:
        try:
            return Environment.model_validate(_filled(values.data, (), attempts))
        except ValidationError as error:
            rejected = {_location(values.data, problem["loc"]) for problem in error.errors()}
            written = [values.at(location) for location in rejected]
            expandable = all(isinstance(value, str) and EXPRESSION.search(value) for value in written)
            if stand_in == STAND_INS[-1] or not expandable:
                raise failure(validation_problems(Environment, values, error)) from None
            attempts |= {location: attempts.get(location, 0) + 1 for location in rejected}
    raise AssertionError("the last stand-in returns or raises")


def _filled(node: Any, location: Location, attempts: Mapping[Location, int]) -> Any:  # noqa: ANN401 - YAML
    if isinstance(node, dict):
        return {key: _filled(item, (*location, key), attempts) for key, item in node.items()}
    if isinstance(node, list):
        return [_filled(item, (*location, index), attempts) for index, item in enumerate(node)]
    if not isinstance(node, str) or isinstance(node, Literal):
        return node
    stand_in = STAND_INS[attempts.get(location, 0)]
    return EXPRESSION.sub(lambda match: _value(match, stand_in), node)


def _value(match: re.Match[str], stand_in: str) -> str:
    """Return the value of an environment variable, the stand-in if it is not set."""
    if match[1] == "stack":
        return STACK_HOST if stand_in == STAND_INS[0] else stand_in
    return os.environ.get(match[2]) or stand_in


def _location(data: Any, location: Location) -> Location:  # noqa: ANN401 - YAML
    """Return the location in the file: pydantic's also contains the `kind` of a target."""
    keys: list[int | str] = []
    node = data
    for key in location:
        try:
            node = node[key]
        except (KeyError, IndexError, TypeError):
            continue
        keys.append(key)
    return tuple(keys)
