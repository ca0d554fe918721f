"""Avro schema files: read, checked and brought to one text form."""

from __future__ import annotations

import hashlib
import json
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


def read_schema(path: Path) -> str:
    """The schema in `path` as compact JSON text. Raises ConfigurationError when it is missing or wrong."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(
            f"schema file {path}: {error.strerror}", "create it, or correct `schema:` of the aggregate"
        ) from None
    try:
        definition = json.loads(text)
    except json.JSONDecodeError as error:
        message = (
            f"schema file {path}: not valid JSON: {error.msg} at line {error.lineno} column {error.colno}"
        )
        raise ConfigurationError(message, "correct the file") from None
    _check(definition, path)
    return json.dumps(definition, separators=(",", ":"), ensure_ascii=False)


def _check(definition: Any, path: Path) -> None:  # noqa: ANN401 - any JSON value
    if not isinstance(definition, dict) or definition.get("type") != "record":
        raise ConfigurationError(f"schema file {path}: the top level must be a record", "correct the file")
    try:
        parse_schema(definition)
    except (SchemaParseException, UnknownType, KeyError, ValueError) as error:
        message = f"schema file {path}: not a valid Avro schema: {type(error).__name__}: {error}"
        raise ConfigurationError(message, "correct the file") from None


def same_schema(left: str, right: str) -> bool:
    """Whether two schema texts say the same, whatever their white space and order of keys."""
    return bool(json.loads(left) == json.loads(right))


def record_name(text: str) -> str:
    """Full name of the record that a schema text declares."""
    return str(fullname(json.loads(text)))


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
