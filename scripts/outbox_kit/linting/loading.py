"""Load lint inputs. Loading does not need secrets or a running stack, and continues after an invalid file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from outbox_events.errors import ConfigurationError
from outbox_kit.linting.lint_rule import LintInput, LintRule
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
from outbox_kit.pipeline.validation_errors import failure, location_in_file, validation_problems
from outbox_kit.pipeline.values_with_origins import LiteralText, Location, Values
from outbox_kit.results.checks import Check, Severity, Status

EXPRESSION_PATTERN = re.compile(r"\{\{\s*(env|stack)\.(\w+)\s*\}\}")
# Substitutes for unset environment variables and for values of the stack. The first valid substitute is used.
SUBSTITUTES = ("unset", "1", "https://unset.invalid", "${env:UNSET}")
STACK_HOST_SUBSTITUTE = "127.0.0.1"
FILES_RULE_ID = "lint.files"


def lint_files(
    files: Iterable[Path], environment: str, overrides: Overrides | None = None, extra_rules: Iterable[LintRule] = ()
) -> list[Check]:
    """Lint pipeline files in one environment, and return the checks.

    A pipeline file that cannot be loaded results in a failed check. If no file can be loaded, rules are not evaluated.
    """
    inputs: list[LintInput] = []
    errors: list[Check] = []
    for path in dict.fromkeys(Path(os.path.relpath(file.resolve())) for file in files):
        try:
            inputs.append(read_input(path, environment, overrides))
        except ConfigurationError as error:
            expected = "a valid pipeline file and environment file"
            errors.append(Check(FILES_RULE_ID, Status.FAIL, error.message, expected, error.hint, Severity.ERROR))
    checks = lint(inputs, (*RULES, *extra_rules)) if inputs else []
    if errors:
        checks = [check for check in checks if check.id != FILES_RULE_ID or check.status is not Status.PASS]
    return [*dict.fromkeys(errors), *checks]


def read_input(pipeline_file: Path, environment: str, overrides: Overrides | None = None) -> LintInput:
    """Return the lint input of one pipeline file. Raises ConfigurationError for a missing or invalid file."""
    overrides = overrides or Overrides()
    pipeline = load_pipeline(pipeline_file, environment, overrides)
    settings, secrets = read_environment(environment, pipeline_file, overrides)
    config, error = _render(pipeline, settings, pipeline_file)
    return LintInput(pipeline, settings, config, str(pipeline_file), secrets, error)


def _render(
    pipeline: Pipeline, environment: Environment, pipeline_file: Path
) -> tuple[dict[str, str], tuple[str, str] | None]:
    """Return (config, error). On an error, the config is empty. `error` is None if `lint.schema.file` reports it."""
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
    """Return an environment with substitutes for unset variables, and the keys whose values are plain-text secrets.

    Raises ConfigurationError.
    """
    values = environment_values(name, pipeline_file, overrides or Overrides())
    environment = resolve_paths(_validate(values), values, project_folder(pipeline_file), ())
    return environment, plain_text_secrets(values.data)


def _validate(values: Values) -> Environment:
    """Return the environment. If a substitute is not valid for a key, use the next substitute for this key."""
    substitute_indexes: dict[Location, int] = {}
    for substitute in SUBSTITUTES:
        try:
            return Environment.model_validate(_expand(values.data, (), substitute_indexes))
        except ValidationError as error:
            rejected_locations = {location_in_file(values, problem)[0] for problem in error.errors()}
            raw_values = [values.value_at(location) for location in rejected_locations]
            all_expandable = all(isinstance(value, str) and EXPRESSION_PATTERN.search(value) for value in raw_values)
            if substitute == SUBSTITUTES[-1] or not all_expandable:
                raise failure(validation_problems(Environment, values, error)) from None
            substitute_indexes |= {location: substitute_indexes.get(location, 0) + 1 for location in rejected_locations}
    raise AssertionError("unreachable: with the last substitute, validation succeeds or the error is raised")


def _expand(node: Any, location: Location, substitute_indexes: Mapping[Location, int]) -> Any:  # noqa: ANN401 - YAML data
    if isinstance(node, dict):
        return {key: _expand(item, (*location, key), substitute_indexes) for key, item in node.items()}
    if isinstance(node, list):
        return [_expand(item, (*location, index), substitute_indexes) for index, item in enumerate(node)]
    if not isinstance(node, str) or isinstance(node, LiteralText):
        return node
    substitute = SUBSTITUTES[substitute_indexes.get(location, 0)]
    return EXPRESSION_PATTERN.sub(lambda match: _expression_value(match, substitute), node)


def _expression_value(match: re.Match[str], substitute: str) -> str:
    """Return the value of an environment variable, or `substitute` for an unset variable or a value of the stack."""
    if match[1] == "stack":
        return STACK_HOST_SUBSTITUTE if substitute == SUBSTITUTES[0] else substitute
    return os.environ.get(match[2]) or substitute
