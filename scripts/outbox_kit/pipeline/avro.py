"""Avro schema files: read, checked and brought to one text form."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fastavro.schema import (
    SchemaParseException,
    UnknownType,
    fullname,
    parse_schema,
    to_parsing_canonical_form,
)

from outbox_kit.errors import ConfigurationError
from outbox_kit.pipeline.files import read_text

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")


def read_schema(path: Path) -> str:
    """The schema in `path` as compact JSON text. Raises ConfigurationError when it is missing or wrong."""
    text = read_text(path, f"schema file {path}", "create it, or correct `schema:` of the aggregate")
    try:
        definition = json.loads(text)
    except json.JSONDecodeError as error:
        message = f"schema file {path}: not valid JSON: {error.msg} at line {error.lineno} column {error.colno}"
        raise ConfigurationError(message, "correct the file") from None
    if not isinstance(definition, dict) or definition.get("type") != "record":
        raise ConfigurationError(f"schema file {path}: the top level must be a record", "correct the file")
    problem = _problem(definition)
    if problem:
        raise ConfigurationError(f"schema file {path}: not a valid Avro schema: {problem}", "correct the file")
    return json.dumps(definition, separators=(",", ":"), ensure_ascii=False)


def _problem(definition: dict[str, Any]) -> str | None:
    """What is wrong with a schema, None when nothing is."""
    try:
        parse_schema(definition)
    except (SchemaParseException, UnknownType, KeyError, ValueError, TypeError, AttributeError) as error:
        return f"{type(error).__name__}: {error}"
    return next(_beyond_parsing(definition), None)


def _beyond_parsing(node: Any) -> Iterator[str]:  # noqa: ANN401 - any part of a schema
    """What fastavro lets through, and a registry or the transform refuses."""
    if isinstance(node, list):
        kinds = Counter(map(_kind, node))
        yield from (f"{kind} twice in a union" for kind, count in kinds.items() if count > 1)
        for item in node:
            yield from _beyond_parsing(item)
    if not isinstance(node, dict):
        return
    if "name" in node and not NAME.fullmatch(str(node["name"])):
        yield f"{node['name']!r} is not a name"
    if node.get("type") == "record":
        fields = node.get("fields")
        if not isinstance(fields, list):
            yield f"record {node.get('name')} has no list of fields"
            return
        names = Counter(str(field["name"]) for field in fields)
        yield from (f"field {name} twice" for name, count in names.items() if count > 1)
        for field in fields:
            yield from _beyond_parsing(field)
    for key in ("type", "items", "values"):
        yield from _beyond_parsing(node.get(key))


def _kind(branch: Any) -> str:  # noqa: ANN401 - any branch of a union
    """What a union may have only once: a type, or a name."""
    if not isinstance(branch, dict):
        return str(branch)
    named = fullname(branch) if "name" in branch else branch.get("type")
    return str(named)


def same_schema(left: str, right: str) -> bool:
    """Whether two schema texts say the same, however they are written.

    White space and order of keys do not count; neither do name + namespace for a full name, or
    `{"type": "string"}` for `"string"`: Confluent's registry hands a schema back in Avro's own spelling.
    """
    return bool(_spelled_alike(left) == _spelled_alike(right))


def _spelled_alike(text: str) -> Any:  # noqa: ANN401 - any part of a schema
    return _simplified(parse_schema(json.loads(text)))


def _simplified(node: Any) -> Any:  # noqa: ANN401 - any part of a schema
    if isinstance(node, list):
        return [_simplified(item) for item in node]
    if not isinstance(node, dict):
        return node
    # A default is data: it is compared as it stands.
    kept = {
        key: value if key == "default" else _simplified(value)
        for key, value in node.items()
        if not key.startswith("__") and key != "namespace"
    }
    return kept["type"] if kept.keys() == {"type"} and isinstance(kept["type"], str) else kept


def fingerprint(text: str) -> str:
    """SHA-256 of the parsing canonical form, hex: equal for schemas that read and write the same bytes."""
    canonical = to_parsing_canonical_form(json.loads(text))
    return hashlib.sha256(canonical.encode()).hexdigest()


def without_docs(text: str) -> str:
    """The schema without `doc`: a connector config is one Kafka record, and documents are not data."""
    return json.dumps(_strip(json.loads(text)), separators=(",", ":"), ensure_ascii=False)


def _strip(node: Any) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(node, list):
        return [_strip(item) for item in node]
    if not isinstance(node, dict):
        return node
    # A default is data: a key named "doc" in it stays.
    kept = {key: value for key, value in node.items() if key != "doc"}
    return {key: value if key == "default" else _strip(value) for key, value in kept.items()}
