"""Loader of lint inputs. It needs no secrets and no running stack, and continues after an invalid file."""

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
from outbox_kit.linting.rules.pipeline_files import schema_error
from outbox_kit.linting.rules.secrets import plain_text_secrets
from outbox_kit.pipeline import (
    Environment,
    Overrides,
    Pipeline,
    load_pipeline,
    project_folder,
    read_lock,
    render_connector,
)
from outbox_kit.pipeline.loading import environment_values, resolve_paths
from outbox_kit.pipeline.validation_errors import failure, validation_problems
from outbox_kit.pipeline.values_with_origins import Literal, Location, Values
from outbox_kit.rules import Check, Severity, Status

EXPRESSION = re.compile(r"\{\{\s*(env|stack)\.(\w+)\s*\}\}")
# Substitutes for an environment variable that is not set. The first substitute that is valid for the key is used.
SUBSTITUTES = ("unset", "1", "http://unset.invalid", "${env:UNSET}")
STACK_HOST = "127.0.0.1"
FILES_RULE = "lint.files"


def lint_files(
    files: Iterable[Path], environment: str, overrides: Overrides | None = None, extra_rules: Iterable[LintRule] = ()
) -> list[Check]:
    """Lint pipeline files in one environment, and return the checks.

    For a file that cannot be read, return a failed check. If no file can be read, no rule is evaluated.
    """
    inputs: list[LintInput] = []
    errors: list[Check] = []
    for path in dict.fromkeys(Path(os.path.relpath(file.resolve())) for file in files):
        try:
            inputs.append(read_input(path, environment, overrides))
        except ConfigurationError as error:
            expected = "a file that can be read"
            errors.append(Check(FILES_RULE, Status.FAIL, error.message, expected, error.hint, Severity.ERROR))
    checks = lint(inputs, (*RULES, *extra_rules)) if inputs else []
    if errors:
        checks = [check for check in checks if check.id != FILES_RULE or check.status is not Status.PASS]
    return [*dict.fromkeys(errors), *checks]


def read_input(pipeline_file: Path, environment: str, overrides: Overrides | None = None) -> LintInput:
    """Return the lint input of one pipeline file. Raises ConfigurationError if a file cannot be read."""
    overrides = overrides or Overrides()
    pipeline = load_pipeline(pipeline_file, environment, overrides)
    settings, secrets = read_environment(environment, pipeline_file, overrides)
    config, error = _render(pipeline, settings, pipeline_file)
    return LintInput(pipeline, settings, config, str(pipeline_file), secrets, error)


def _render(
    pipeline: Pipeline, environment: Environment, pipeline_file: Path
) -> tuple[dict[str, str], tuple[str, str] | None]:
    """Return the config and the error. The error of an invalid schema is omitted: the rule `schema.file` reports it."""
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
    """Return an environment and the keys of its plain-text secrets. A variable that is not set has a substitute.

    Raises ConfigurationError.
    """
    values = environment_values(name, pipeline_file, overrides or Overrides())
    environment = resolve_paths(_validate(values), values, project_folder(pipeline_file), ())
    return environment, plain_text_secrets(values.data)


def _validate(values: Values) -> Environment:
    """Validate the environment file. If a substitute is invalid for a key, use the next substitute for that key."""
    attempts: dict[Location, int] = {}
    for substitute in SUBSTITUTES:
        try:
            return Environment.model_validate(_expand(values.data, (), attempts))
        except ValidationError as error:
            rejected = {_location(values.data, problem["loc"]) for problem in error.errors()}
            raw_values = [values.value_at(location) for location in rejected]
            expandable = all(isinstance(value, str) and EXPRESSION.search(value) for value in raw_values)
            if substitute == SUBSTITUTES[-1] or not expandable:
                raise failure(validation_problems(Environment, values, error)) from None
            attempts |= {location: attempts.get(location, 0) + 1 for location in rejected}
    raise AssertionError("the last substitute returns or raises")


def _expand(node: Any, location: Location, attempts: Mapping[Location, int]) -> Any:  # noqa: ANN401 - YAML
    if isinstance(node, dict):
        return {key: _expand(item, (*location, key), attempts) for key, item in node.items()}
    if isinstance(node, list):
        return [_expand(item, (*location, index), attempts) for index, item in enumerate(node)]
    if not isinstance(node, str) or isinstance(node, Literal):
        return node
    substitute = SUBSTITUTES[attempts.get(location, 0)]
    return EXPRESSION.sub(lambda match: _variable_value(match, substitute), node)


def _variable_value(match: re.Match[str], substitute: str) -> str:
    """Return the value of an expression, or the substitute if its environment variable is not set."""
    if match[1] == "stack":
        return STACK_HOST if substitute == SUBSTITUTES[0] else substitute
    return os.environ.get(match[2]) or substitute


def _location(data: Any, location: Location) -> Location:  # noqa: ANN401 - YAML
    """Return the location without the `kind` of a target, which pydantic adds to the location of an error."""
    keys: list[int | str] = []
    node = data
    for key in location:
        try:
            node = node[key]
        except (KeyError, IndexError, TypeError):
            continue
        keys.append(key)
    return tuple(keys)
