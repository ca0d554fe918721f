"""What is wrong with a file, in words: where it stands, what was found, what is allowed. Never a secret."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from outbox_kit.errors import ConfigurationError
from outbox_kit.pipeline import schema_lookup
from outbox_kit.pipeline.layered_values import Location, Values

SHOWN = 5
VALUE_LENGTH = 60
DESCRIBED = "keys and allowed values are described in docs/pipeline.md"
# What may hold a secret, whatever the model says: kafka.client is librdkafka's, with keys of its own.
SECRET = re.compile(r"password|passwd|token|secret|client|credential|sasl|key$", re.IGNORECASE)
CONTAINERS = frozenset({"model_type", "model_attributes_type", "dict_type", "list_type"})


def failure(problems: Iterable[str], hint: str = DESCRIBED) -> ConfigurationError:
    """One error for all `problems`: the first few, one per line."""
    found = list(dict.fromkeys(problems))
    more = [f"... and {len(found) - SHOWN} more"] if len(found) > SHOWN else []
    return ConfigurationError("\n".join([*found[:SHOWN], *more]), hint)


def validation_problems(model: type[BaseModel], values: Values, error: ValidationError) -> list[str]:
    """One line for each error; an unknown key first, for it is often the misspelt one that another misses."""
    errors = error.errors(include_url=False)
    errors.sort(key=lambda each: each["type"] != "extra_forbidden")
    return [_problem(model, values, each) for each in errors]


def _problem(model: type[BaseModel], values: Values, error: ErrorDetails) -> str:
    location, found = _location(values, error)
    where = ".".join(map(str, location)) or "(top level)"
    return f"{values.origin(location)}: {where}: {_words(model, values, location, error, found)}"


def _location(values: Values, error: ErrorDetails) -> tuple[Location, object]:
    """Where the file has it, without what pydantic adds: the chosen member of a union, `[key]`."""
    location: Location = ()
    node: Any = values.data
    parts = list(error["loc"])
    for index, part in enumerate(parts):
        if part == "[key]":
            break
        last = index == len(parts) - 1
        if isinstance(node, dict) and part not in node and not (last and error["type"] == "missing"):
            continue  # the tag of a union
        location = (*location, part)
        node = _child(node, part)
    if error["type"] in ("union_tag_invalid", "union_tag_not_found"):
        tag = str(error["ctx"]["discriminator"]).strip("'")
        return (*location, tag), _child(node, tag)
    return location, error["input"]


def _child(node: Any, part: object) -> Any:  # noqa: ANN401 - YAML data
    try:
        return node[part]
    except (KeyError, IndexError, TypeError):
        return None


def _words(model: type[BaseModel], values: Values, location: Location, error: ErrorDetails, found: object) -> str:
    kind, allowed = error["type"], _allowed(error)
    if kind == "extra_forbidden":
        return f"unknown key; {_nearest(model, values, location)}"
    if kind in ("missing", "union_tag_not_found"):
        return f"missing; {_described(model, values, location) or 'it is required'}"
    if kind == "value_error" and isinstance(found, dict):
        return allowed
    described = _described(model, values, location)
    return f"found {_shown(model, values, location, kind, found)}; {allowed}" + (f" ({described})" if described else "")


def _allowed(error: ErrorDetails) -> str:
    """pydantic's own words, shorter."""
    context = error.get("ctx", {})
    if error["type"] == "union_tag_invalid":
        return f"must be one of {context['expected_tags']}"
    if error["type"] == "string_pattern_mismatch":
        return f"must match {context['pattern']}"
    words = error["msg"].removeprefix("Value error, ").split(", unable to parse")[0]
    words = re.sub(r"^(Input|String|Dictionary|List|Value|Keys) should ", "must ", words)
    return re.sub(r"a valid dictionary( or instance of \w+)?", "a mapping", words).replace("a valid list", "a list")


def _nearest(model: type[BaseModel], values: Values, location: Location) -> str:
    """The known keys of the same mapping that look like this one; all where none does."""
    node = schema_lookup.at(model, values.data, location[:-1]) or {}
    known = sorted(node.get("properties", {}))
    near = difflib.get_close_matches(str(location[-1]), known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"known here: {', '.join(known) or 'none'}"


def _described(model: type[BaseModel], values: Values, location: Location) -> str:
    """The key's own description."""
    if not location or not isinstance(location[-1], str):
        return ""
    parent = schema_lookup.at(model, values.data, location[:-1])
    own = (parent or {}).get("properties", {}).get(location[-1], {})
    return str(own.get("description", "")).rstrip(".")


def _shown(model: type[BaseModel], values: Values, location: Location, kind: str, found: object) -> str:
    """The value found, where it can hold no secret; an expression as it is written."""
    written = values.at(location)
    if isinstance(found, dict | list):
        return "a mapping" if isinstance(found, dict) else "a list"
    if found is None:
        return "nothing"
    if kind in CONTAINERS:
        return "text" if isinstance(found, str) else "a single value"
    hidden = schema_lookup.is_secret(schema_lookup.at(model, values.data, location)) or any(
        SECRET.search(str(key)) for key in location
    )
    if hidden or (isinstance(found, str) and "@" in found):
        return "a value that is not shown"
    if isinstance(written, str) and "{{" in written:
        return f"{written!r}, whose value is not shown"
    text = repr(str(found)) if isinstance(found, str) else str(found)
    return text if len(text) <= VALUE_LENGTH else f"{text[:VALUE_LENGTH]}..."
