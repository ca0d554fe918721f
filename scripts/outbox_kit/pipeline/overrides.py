"""Apply overrides: `--set KEY=VALUE`, and environment variables `OUTBOX__KEY__KEY`, which take precedence."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml
from pydantic import BaseModel

from outbox_events.errors import ConfigurationError
from outbox_kit.pipeline import json_schema_nodes
from outbox_kit.pipeline.values_with_origins import LiteralText, Location, Values, parse_yaml

SET_OPTION = "--set"
VARIABLE_PREFIX = "OUTBOX__"
ENVIRONMENT_PREFIX = "environment"
FORM_HINT = "write KEY=VALUE, for instance aggregates.book.partitions=12 or environment.kafka.replication_factor=3"


@dataclass(frozen=True)
class Overrides:
    """Overrides of one command.

    `options` contains the KEY=VALUE texts of `--set`. KEY is a dotted path in the pipeline file, or in the environment
    file if KEY begins with `environment.`. `environ` contains the environment variables of the process. `reference`
    returns the text that replaces the secret value of the named variable in the environment file.
    """

    options: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    reference: Callable[[str], str] | None = None

    def apply_to(self, model: type[BaseModel], values: Values, *, of_environment: bool) -> None:
        """Apply the overrides of a pipeline file, or of an environment file, to `values`. Raises ConfigurationError."""
        for option in self.options:
            key, text = _split(option)
            segments = key.split(".")
            if (segments[0] == ENVIRONMENT_PREFIX) == of_environment:
                location = _location_of_path(model, values.data, segments[1:] if of_environment else segments)
                _set_value(model, values, location, text, f"{SET_OPTION} {key}", literal=False)
        for name in sorted(name for name in self.environ if name.upper().startswith(VARIABLE_PREFIX)):
            segments = [segment.lower() for segment in name[len(VARIABLE_PREFIX) :].split("__")]
            if (segments[0] == ENVIRONMENT_PREFIX) == of_environment:
                location = _location_of_variable(model, values.data, segments[1:] if of_environment else segments, name)
                _set_value(model, values, location, self.environ[name], f"environment variable {name}", literal=True)


def variable_of(location: Location) -> str:
    """Return the name of the variable that overrides a key of the environment file."""
    keys = (re.sub(r"[^A-Z0-9]", "_", str(key).upper()) for key in (ENVIRONMENT_PREFIX, *location))
    return VARIABLE_PREFIX + "__".join(keys)


def _split(option: str) -> tuple[str, str]:
    key, equals, text = option.partition("=")
    if not equals or not all(key.split(".")):
        # The message omits the value of the option, which can be a secret if the user omitted the key.
        raise ConfigurationError(f"{SET_OPTION}: not in the form KEY=VALUE", FORM_HINT)
    return key, text


def _set_value(
    model: type[BaseModel], values: Values, location: Location, text: str, origin: str, *, literal: bool
) -> None:
    if not location:
        raise ConfigurationError(f"{origin}: a key of the environment file must follow `environment`", FORM_HINT)
    value = _parse_value(json_schema_nodes.node_at(model, values.data, location), text, origin)
    try:
        values.set_value(location, LiteralText(value) if literal and isinstance(value, str) else value, origin)
    except (LookupError, TypeError):
        hint = "use a key of a mapping or an existing index of a list, or set the entire value"
        raise ConfigurationError(
            f"{origin}: the parent is neither a mapping nor a list with this index", hint
        ) from None


def _parse_value(node: json_schema_nodes.Node | None, text: str, origin: str) -> Any:  # noqa: ANN401 - YAML data
    """Return the text (or None for a permitted null) if the schema requires a string. Otherwise, parse it as YAML."""
    is_list = node is not None and node.get("is_list_accepted") and text.startswith("[")
    if node is not None and node.get("type") == "string" and not is_list:
        return None if node.get("nullable") and text in ("", "~", "null") else text
    try:
        return parse_yaml(text)[1]
    except (yaml.YAMLError, ValueError):
        raise ConfigurationError(f"{origin}: the value is not valid YAML", "quote the value as YAML text") from None


def _location_of_path(model: type[BaseModel], data: Any, segments: list[str]) -> Location:  # noqa: ANN401 - YAML data
    """Return the location of a dotted path, in which user-defined keys can contain dots."""
    location: Location = ()
    while segments:
        node = json_schema_nodes.node_at(model, data, location) or {}
        value = Values(data, {}).value_at(location)
        length = _key_length(node, value, segments)
        key = ".".join(segments[:length])
        location = (*location, int(key) if isinstance(value, list) and key.isdigit() else key)
        segments = segments[length:]
    return location


def _key_length(node: json_schema_nodes.Node, value: Any, segments: list[str]) -> int:  # noqa: ANN401 - YAML data
    """Return the number of leading segments that form the first key, which can contain dots."""
    if json_schema_nodes.maps_to_scalars(node):
        return len(segments)
    if json_schema_nodes.value_schema(node) is not None and isinstance(value, dict):
        return next((count for count in range(len(segments), 0, -1) if ".".join(segments[:count]) in value), 1)
    return 1


def _location_of_variable(model: type[BaseModel], data: Any, segments: list[str], name: str) -> Location:  # noqa: ANN401 - YAML data
    """Return the location that a variable sets. Keys match regardless of case, and `-`, `.` and `_` are equivalent."""
    location: Location = ()
    for segment in segments:
        node = json_schema_nodes.node_at(model, data, location) or {}
        value = Values(data, {}).value_at(location)
        if isinstance(value, list) and segment.isdigit():
            location = (*location, int(segment))
            continue
        known_keys = [*node.get("properties", {}), *(value if isinstance(value, dict) else [])]
        match = next((key for key in known_keys if _normalized(str(key)) == _normalized(segment)), None)
        if match is None and json_schema_nodes.maps_to_scalars(node):
            message = f"environment variable {name}: no key like {segment!r} in {'.'.join(map(str, location))}"
            raise ConfigurationError(message, f"add the key with {SET_OPTION} or in the file")
        location = (*location, segment if match is None else match)
    return location


def _normalized(key: str) -> str:
    return key.lower().replace("-", "_").replace(".", "_")
