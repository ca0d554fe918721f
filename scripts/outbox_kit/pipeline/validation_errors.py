"""Describe errors in files. Messages contain the location, the key, the value and the allowed values, not secrets."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from outbox_common.error_text import one_line
from outbox_common.secret_patterns import has_secret, is_secret_name
from outbox_events.errors import ConfigurationError
from outbox_kit.pipeline import json_schema_nodes
from outbox_kit.pipeline.values_with_origins import Location, Values, child_value

MAX_PROBLEMS = 5
# Describing an error takes about 1 ms, and a file can have thousands of errors.
MAX_DESCRIBED_PROBLEMS = 100
MAX_VALUE_LENGTH = 60
REFERENCE_HINT = "see docs/pipeline.md for the keys and their allowed values"
# Keys whose value can be a secret although the model does not mark it as one, such as settings of kafka.client.
SECRET_KEY = re.compile(r"client|sasl|key(\.|$)", re.IGNORECASE)
CONTAINER_ERROR_TYPES = frozenset({"model_type", "model_attributes_type", "dict_type", "list_type"})


def failure(problems: Iterable[str], hint: str = REFERENCE_HINT) -> ConfigurationError:
    """Return one error for all problems, with a line for each of the first MAX_PROBLEMS."""
    # A CI system executes log lines such as `::error::text`, so a line feed in a key must not begin a new line.
    lines = list(dict.fromkeys(map(one_line, problems)))
    omitted = [f"... and {len(lines) - MAX_PROBLEMS} more"] if len(lines) > MAX_PROBLEMS else []
    return ConfigurationError("\n".join([*lines[:MAX_PROBLEMS], *omitted]), hint)


def validation_problems(model: type[BaseModel], values: Values, error: ValidationError) -> list[str]:
    """Return one line per error. Unknown keys come first, because a misspelled key is also reported as missing.

    Lines after the first MAX_DESCRIBED_PROBLEMS contain only the location, because failure() only counts them.
    """
    errors = error.errors(include_url=False)
    errors.sort(key=lambda entry: entry["type"] != "extra_forbidden")
    locations = [".".join(map(str, entry["loc"])) for entry in errors[MAX_DESCRIBED_PROBLEMS:]]
    return [*(_problem(model, values, entry) for entry in errors[:MAX_DESCRIBED_PROBLEMS]), *locations]


def _problem(model: type[BaseModel], values: Values, error: ErrorDetails) -> str:
    location, value = location_in_file(values, error)
    key = ".".join(map(str, location)) or "(top level)"
    return f"{values.origin(location)}: {key}: {_description(model, values, location, error, value)}"


def location_in_file(values: Values, error: ErrorDetails) -> tuple[Location, object]:
    """Return the location in the file, without pydantic's union tags and `[key]`, and the value at the location."""
    location: Location = ()
    node: Any = values.data
    location_keys = list(error["loc"])
    for index, key in enumerate(location_keys):
        if key == "[key]":
            break
        is_last = index == len(location_keys) - 1
        if isinstance(node, dict) and key not in node and not (is_last and error["type"] == "missing"):
            continue  # the tag of a union
        location = (*location, key)
        node = child_value(node, key)
    if error["type"] in ("union_tag_invalid", "union_tag_not_found"):
        discriminator = str(error["ctx"]["discriminator"]).strip("'")
        return (*location, discriminator), child_value(node, discriminator)
    return location, error["input"]


def _description(model: type[BaseModel], values: Values, location: Location, error: ErrorDetails, value: object) -> str:
    kind, requirement = error["type"], _requirement(error)
    if kind == "extra_forbidden":
        return f"unknown key; {_suggestion(model, values, location)}"
    if kind in ("missing", "union_tag_not_found"):
        return f"missing; {_key_description(model, values, location) or 'it is required'}"
    if kind == "value_error" and isinstance(value, dict):
        return requirement
    description = _key_description(model, values, location)
    return f"found {_printable_value(model, values, location, kind, value)}; {requirement}" + (
        f" ({description})" if description else ""
    )


def _requirement(error: ErrorDetails) -> str:
    """Return the condition that a valid value meets. The text is pydantic's message in this project's terms."""
    context = error.get("ctx", {})
    if error["type"] == "union_tag_invalid":
        return f"must be one of {context['expected_tags']}"
    if error["type"] == "string_pattern_mismatch":
        return f"must match {context['pattern']}"
    message = error["msg"].removeprefix("Value error, ").split(", unable to parse")[0]
    message = re.sub(r"^(Input|String|Dictionary|List|Value|Keys) should ", "must ", message)
    return re.sub(r"a valid dictionary( or instance of \w+)?", "a mapping", message).replace("a valid list", "a list")


def _suggestion(model: type[BaseModel], values: Values, location: Location) -> str:
    """Return a hint with the most similar known key of the mapping, or with all known keys."""
    node = json_schema_nodes.node_at(model, values.data, location[:-1]) or {}
    known_keys = sorted(node.get("properties", {}))
    matches = difflib.get_close_matches(str(location[-1]), known_keys, n=1)
    return f"did you mean {matches[0]!r}?" if matches else f"known keys: {', '.join(known_keys) or 'none'}"


def _key_description(model: type[BaseModel], values: Values, location: Location) -> str:
    if not location or not isinstance(location[-1], str):
        return ""
    parent = json_schema_nodes.node_at(model, values.data, location[:-1])
    schema = (parent or {}).get("properties", {}).get(location[-1], {})
    return str(schema.get("description", "")).rstrip(".")


def _printable_value(model: type[BaseModel], values: Values, location: Location, kind: str, value: object) -> str:
    """Return the value as text. A value that can be a secret is redacted, and an expression is not expanded."""
    raw_value = values.value_at(location)
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    if value is None:
        return "null"
    if kind in CONTAINER_ERROR_TYPES:
        return "text" if isinstance(value, str) else "a scalar"
    node = json_schema_nodes.node_at(model, values.data, location) or {}
    key = ".".join(map(str, location))
    is_secret = node.get("format") == "password" or is_secret_name(key) or SECRET_KEY.search(key)
    if is_secret or (isinstance(value, str) and (re.search(r"@|://.*\?", value) or has_secret(value))):
        return "a redacted value"
    if isinstance(raw_value, str) and "{{" in raw_value:
        return f"{raw_value!r} (value redacted)"
    text = repr(str(value)) if isinstance(value, str) else str(value)
    return text if len(text) <= MAX_VALUE_LENGTH else f"{text[:MAX_VALUE_LENGTH]}..."
