"""Reads the pipeline and environment files; every error says which file, which key and what is allowed."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from jinja2 import Environment as JinjaEnvironment
from jinja2 import StrictUndefined, TemplateError
from pydantic import BaseModel, TypeAdapter, ValidationError

from outbox_kit.errors import ConfigurationError
from outbox_kit.pipeline.environment import (
    DeltaTarget,
    Environment,
    HttpService,
    Kafka,
    SourceDatabase,
    Target,
)
from outbox_kit.pipeline.files import read_mapping
from outbox_kit.pipeline.model import Aggregate, Pipeline

STACK_STATE = Path("build/stack/state.json")
START = "start it with `outbox stack up`"
SECTIONS = ("source", "kafka", "registry", "connect", "targets")
ModelT = TypeVar("ModelT", bound=BaseModel)


def project_folder(pipeline_file: Path) -> Path:
    """The folder that paths in the files are relative to: the one that holds `connectors/`."""
    return pipeline_file.resolve().parent.parent


def load_pipeline(path: Path) -> Pipeline:
    """Read a pipeline file; schema paths become absolute. Raises ConfigurationError."""
    pipeline = _validate(Pipeline, read_mapping(path), path)
    root = project_folder(path)
    aggregates = {name: _with_schema(entry, root) for name, entry in pipeline.aggregates.items()}
    return pipeline.model_copy(update={"aggregates": aggregates})


def load_environment(
    name: str,
    pipeline_file: Path,
    environ: Mapping[str, str] = os.environ,
    *,
    needs: Collection[str] = SECTIONS,
) -> Environment:
    """Read connectors/environments/NAME.yaml beside the pipeline file, secrets filled in from `environ`.

    In its values `{{ env.NAME }}` is an environment variable and `{{ stack.NAME }}` a value of the running
    embedded stack. `needs` names the keys (`source`, `source.host`) whose variables must be set: who
    schedules Spark jobs does not hold the database owner's password. Raises ConfigurationError for an unset variable,
    a stack that is not up, a wrong key.
    """
    root = project_folder(pipeline_file)
    folder = pipeline_file.resolve().parent / "environments"
    path = folder / f"{name}.yaml"
    if not path.exists():
        known = ", ".join(sorted(entry.stem for entry in folder.glob("*.yaml"))) or "none"
        raise ConfigurationError(f"environment {name!r}: no file {path}", f"environments here: {known}")
    values = {key: _section(key, value, path, root, environ, needs) for key, value in read_mapping(path).items()}
    environment = _validate(Environment, values, path)
    targets = {key: _absolute(target, root) for key, target in environment.targets.items()}
    return environment.model_copy(update={"lock_folder": root / environment.lock_folder, "targets": targets})


def _with_schema(aggregate: Aggregate, root: Path) -> Aggregate:
    return aggregate.model_copy(update={"schema_file": root / aggregate.schema_file})


def _absolute(target: Any, root: Path) -> Any:  # noqa: ANN401 - a member of the Target union, returned as it came
    if isinstance(target, DeltaTarget) and "://" not in target.path:
        return target.model_copy(update={"path": str(root / target.path)})
    return target


# What stands for a section that the caller does not need, where its variables are not set.
EMPTY: dict[str, tuple[TypeAdapter[Any], Callable[[], object]]] = {
    "source": (TypeAdapter(SourceDatabase), SourceDatabase.model_construct),
    "kafka": (TypeAdapter(Kafka), Kafka.model_construct),
    "registry": (TypeAdapter(HttpService), HttpService.model_construct),
    "connect": (TypeAdapter(HttpService), HttpService.model_construct),
    "targets": (TypeAdapter(dict[str, Target]), dict),
}
UNSET = "unset"


def _section(
    key: str, value: object, path: Path, root: Path, environ: Mapping[str, str], needs: Collection[str]
) -> object:
    """One top-level section, filled in."""
    filling = _Filling(path, root, environ, needs)
    filled = _fill(value, key, filling)
    if key not in EMPTY or any(need.split(".")[0] == key for need in needs):
        return filled
    adapter, empty = EMPTY[key]
    try:
        return adapter.validate_python(filled)
    except ValidationError:
        # With every variable set it is the file that is wrong, and the whole is validated next.
        return empty() if filling.unset else filled


class _StackValues:
    """`stack` in an environment file: values of the running embedded stack, read when first asked for."""

    def __init__(self, root: Path) -> None:
        self._state_file = root / STACK_STATE

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - JSON values
        values = self._values()
        if name not in values:
            known = ", ".join(sorted(values))
            raise ConfigurationError(f"the embedded stack has no value {name!r}", f"it has: {known}")
        return values[name]

    def _values(self) -> dict[str, Any]:
        if not self._state_file.exists():
            raise ConfigurationError("the embedded stack is not up", START)
        try:
            state = json.loads(self._state_file.read_text(encoding="utf-8"))
            parts, values = state["parts"], dict(state["environment"])
        except (OSError, ValueError, KeyError, TypeError):
            message = f"the embedded stack's state file {self._state_file} cannot be used"
            raise ConfigurationError(message, "`outbox stack down --purge`, then `outbox stack up`") from None
        if not parts:
            raise ConfigurationError("the embedded stack is not up", START)
        return values


@dataclass(frozen=True)
class _Filling:
    """What the expressions in one file can use, and which keys cannot do without."""

    path: Path
    root: Path
    environ: Mapping[str, str]
    needs: Collection[str]
    unset: list[str] = field(default_factory=list)

    def needed(self, where: str) -> bool:
        section = where.split(".", maxsplit=1)[0]
        return section not in EMPTY or any(f"{where}.".startswith(f"{need}.") for need in self.needs)


class _Variables:
    """`env` in an environment file: environment variables, with an error that names the unset one."""

    def __init__(self, filling: _Filling, where: str) -> None:
        self._filling = filling
        self._where = where

    def __getattr__(self, name: str) -> str:
        value = self._filling.environ.get(name)
        if value:
            return value
        if not self._filling.needed(self._where):
            self._filling.unset.append(name)
            return UNSET
        message = f"{self._filling.path}: environment variable {name} is not set"
        raise ConfigurationError(message, f"export {name}=... and run again")


def _fill(value: Any, where: str, filling: _Filling) -> Any:  # noqa: ANN401 - YAML
    """Expand the expressions in values, after the YAML is parsed: a secret can hold any character."""
    if isinstance(value, dict):
        return {key: _fill(item, f"{where}.{key}", filling) for key, item in value.items()}
    if isinstance(value, list):
        return [_fill(item, f"{where}.{index}", filling) for index, item in enumerate(value)]
    if not isinstance(value, str) or "{{" not in value:
        return value
    jinja = JinjaEnvironment(undefined=StrictUndefined, autoescape=False)  # noqa: S701 - no HTML here
    try:
        return jinja.from_string(value).render(env=_Variables(filling, where), stack=_StackValues(filling.root))
    except TemplateError as error:
        message = f"{filling.path}: {where}: {error}"
        raise ConfigurationError(message, "only {{ env.NAME }} and {{ stack.NAME }} can be used") from None


def _validate(model: type[ModelT], data: Mapping[str, Any], path: Path) -> ModelT:
    try:
        return model.model_validate(data)
    except ValidationError as error:
        # An unknown key is often the misspelt one that another error misses: it comes first.
        errors = error.errors(include_url=False, include_input=False)
        first = min(errors, key=lambda each: each["type"] != "extra_forbidden")
        where = ".".join(str(part) for part in first["loc"]) or "(top level)"
        more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
        raise ConfigurationError(f"{path}: {where}: {first['msg']}{more}", _suggest(model, first["loc"])) from None


def _suggest(model: type[BaseModel], location: tuple[int | str, ...]) -> str:
    """The nearest known key, for a key that is unknown; else where the keys are described."""
    key = str(location[-1]) if location else ""
    near = difflib.get_close_matches(key, sorted(_keys(model.model_json_schema())), n=1)
    if near and near[0] != key:
        return f"did you mean {near[0]!r}? Keys are described in docs/pipeline.md"
    return "keys and allowed values are described in docs/pipeline.md"


def _keys(schema: dict[str, Any]) -> set[str]:
    definitions = [schema, *schema.get("$defs", {}).values()]
    return {key for definition in definitions for key in definition.get("properties", {})}
