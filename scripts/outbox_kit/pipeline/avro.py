"""Read, validate and normalize Avro schema files."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from fastavro.schema import (
    SchemaParseException,
    UnknownType,
    fullname,
    parse_schema,
    schema_name,
    to_parsing_canonical_form,
)

from outbox_events.errors import ConfigurationError
from outbox_events.schemas.avro_schema import compact
from outbox_kit.pipeline.values_with_origins import read_text

NAMED_TYPES = frozenset({"record", "enum", "fixed"})
PRIMITIVE_TYPES = frozenset({"boolean", "bytes", "double", "float", "int", "long", "null", "string"})
SCHEMA_ERRORS = (SchemaParseException, UnknownType, KeyError, ValueError, TypeError, AttributeError)
"""Exceptions that fastavro raises for an invalid schema."""
MAX_VALUES = {"int": 2**31 - 1, "long": 2**63 - 1, "float": 2.0**128 - 2.0**104, "double": math.inf}
MAX_BYTES = 2_000_000
MAX_LEVELS = 150
"""Maximum nesting depth of JSON values in a schema, because the functions that process schemas are recursive."""
MAX_NODES = 20_000
"""Maximum number of JSON values in a schema, including its references."""
MAX_BRANCHES = 100
"""Maximum number of branches in a union. Lint compares each pair of branches."""
NAME_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")


def read_schema(path: Path, *, references: Sequence[Any] = (), require_record: bool = True) -> str:
    """Return the schema in a file as compact JSON. The schema can refer to the types in `references` by name.

    Raises ConfigurationError if the file is missing or invalid, or if `require_record` is set for another type.
    """
    definition = read_definition(path)
    if require_record and definition["type"] != "record":
        raise ConfigurationError(f"schema file {path}: the top level must be a record", "define a record")
    schema_error = _first_error(definition, references)
    if schema_error:
        raise ConfigurationError(f"schema file {path}: not a valid Avro schema: {schema_error}", "correct the schema")
    return compact(definition)


def read_file(path: Path) -> str:
    """Return the text of a schema file. Raises ConfigurationError."""
    hint = "create the file, or correct the aggregate's `schema:` or `references:`"
    return read_text(path, f"schema file {path}", hint, MAX_BYTES)


def read_definition(path: Path) -> dict[str, Any]:
    """Parse a file that defines a named type. Only `type` and `name` are validated. Raises ConfigurationError."""
    try:
        definition = parse_bounded(f"schema file {path}", read_file(path))
    except json.JSONDecodeError as error:
        message = f"schema file {path}: not valid JSON: {error.msg} at line {error.lineno} column {error.colno}"
        raise ConfigurationError(message, "correct the JSON") from None
    except ValueError:  # Python limits the number of digits
        message = f"schema file {path}: not valid JSON: a number has too many digits"
        raise ConfigurationError(message, "correct the number") from None
    if not isinstance(definition, dict) or str(definition.get("type")) not in NAMED_TYPES:
        message = f"schema file {path}: the top level must be a record (or, in a reference, an enum or a fixed)"
        raise ConfigurationError(message, "define one of these types at the top level")
    if not isinstance(definition.get("name"), str):
        raise ConfigurationError(f"schema file {path}: not a valid Avro schema: it has no name", "add `name`")
    return definition


def parse_bounded(subject: str, text: str) -> Any:  # noqa: ANN401 - any JSON value
    """Parse the JSON text of a schema. Raises ValueError if the text is not JSON.

    Raises ConfigurationError, with a message that begins with `subject`, if the schema exceeds a limit.
    """
    try:
        node = json.loads(text)
    except RecursionError:
        raise too_deep(subject) from None
    nodes, levels, count = [node], 0, 0
    while nodes:
        levels += 1
        count += len(nodes)
        nodes = [child for parent in nodes for child in _children(parent)]
    if count > MAX_NODES:
        raise ConfigurationError(f"{subject}: more than {MAX_NODES} JSON values", "define the schema with fewer fields")
    if levels > MAX_LEVELS:
        raise too_deep(subject)
    return node


def _children(node: Any) -> Collection[Any]:  # noqa: ANN401 - any JSON value
    if isinstance(node, dict):
        return node.values()
    return node if isinstance(node, list) else ()


def too_deep(subject: str) -> ConfigurationError:
    """Return the error for a schema that, together with its references, has more than MAX_LEVELS levels."""
    message = f"{subject}: types are nested over {MAX_LEVELS} levels of JSON"
    return ConfigurationError(message, "define the schema with fewer nested types")


def _first_error(definition: dict[str, Any], references: Sequence[Any]) -> str | None:
    """Return the message of the first error in a schema, or None if the schema is valid."""
    types: dict[str, Any] = {}
    try:
        for reference in references:
            parse_schema(reference, types)
        parse_schema(definition, types)
    except SCHEMA_ERRORS as error:
        return f"{type(error).__name__}: {error}"
    return next(_semantic_errors(definition), None)


def used_and_defined_names(definition: Any) -> tuple[list[str], list[str]]:  # noqa: ANN401 - any schema
    """Return the full names that a schema uses but does not define, and the full names that it defines, in order."""
    used: dict[str, None] = {}
    defined: dict[str, None] = {}
    _collect_names(definition, "", used, defined)
    return [name for name in used if name not in defined], list(defined)


def _collect_names(node: Any, namespace: str, used: dict[str, None], defined: dict[str, None]) -> None:  # noqa: ANN401
    if isinstance(node, list):
        for item in node:
            _collect_names(item, namespace, used, defined)
    elif isinstance(node, str):
        if node not in PRIMITIVE_TYPES:
            used[node if "." in node or not namespace else f"{namespace}.{node}"] = None
    elif isinstance(node, dict):
        kind = node.get("type")
        if isinstance(kind, str) and kind in NAMED_TYPES and isinstance(node.get("name"), str):
            namespace, name = schema_name({**node, "namespace": str(node.get("namespace", namespace))}, namespace)
            defined[name] = None
            fields = node.get("fields")
            for field in fields if isinstance(fields, list) else []:
                _collect_names(field.get("type") if isinstance(field, dict) else None, namespace, used, defined)
        elif not (isinstance(kind, str) and kind in ("array", "map")):
            _collect_names(kind, namespace, used, defined)
        for key in ("items", "values"):
            _collect_names(node.get(key), namespace, used, defined)


def _semantic_errors(node: Any) -> Iterator[str]:  # noqa: ANN401 - any node of a schema
    """Yield messages for errors that fastavro accepts, but the registry or the transform rejects."""
    if isinstance(node, list):
        if len(node) > MAX_BRANCHES:
            yield f"a union has {len(node)} branches; the maximum is {MAX_BRANCHES}"
        branch_counts = Counter(map(_branch_name, node))
        yield from (f"a union has {kind} twice" for kind, count in branch_counts.items() if count > 1)
        for item in node:
            yield from _semantic_errors(item)
    if not isinstance(node, dict):
        return
    if "name" in node and not NAME_PATTERN.fullmatch(str(node["name"])):
        yield f"{node['name']!r} is not a valid name"
    if node.get("type") == "record":
        fields = node.get("fields")
        if not isinstance(fields, list):
            yield f"record {node.get('name')} has no list of fields"
            return
        yield from _field_errors(fields)
    for key in ("type", "items", "values"):
        yield from _semantic_errors(node.get(key))


def _field_errors(fields: list[dict[str, Any]]) -> Iterator[str]:
    field_counts = Counter(str(field["name"]) for field in fields)
    yield from (f"field {name} is defined twice" for name, count in field_counts.items() if count > 1)
    for field in fields:
        if not _has_exact_default(field):
            yield f"the default of field {field['name']} is not a value of the first numeric type"
        yield from _semantic_errors(field)


def _has_exact_default(field: dict[str, Any]) -> bool:
    """Return whether Avro's Java library keeps a default number. It converts the number to the first numeric type."""
    default, branches = field.get("default"), field["type"] if isinstance(field["type"], list) else [field["type"]]
    kind = next((name for name in map(_branch_name, branches) if name in MAX_VALUES), None)
    if kind is None or isinstance(default, bool) or not isinstance(default, int | float):
        return True
    is_in_range = -MAX_VALUES[kind] - 1 <= default <= MAX_VALUES[kind]
    return is_in_range and (kind in ("float", "double") or default == int(default))


def _branch_name(branch: Any) -> str:  # noqa: ANN401 - any branch of a union
    """Return the type of a union branch, or its full name if the type is named. Results must be unique in a union."""
    if not isinstance(branch, dict):
        return str(branch)
    return str(fullname(branch) if "name" in branch else branch.get("type"))


def same_schema(schema: str, other_schema: str) -> bool:
    """Return whether two schemas are equal, regardless of notation.

    Confluent's registry changes white space, the order of keys, and whether full names and types such as `"string"` are
    written in short or long form, so the comparison ignores these differences.
    """
    first, second = (_in_short_notation(parse_schema(json.loads(text), {})) for text in (schema, other_schema))
    return bool(first == second)


def _in_short_notation(node: Any) -> Any:  # noqa: ANN401 - any node of a schema
    if not isinstance(node, dict):
        return _map_children(node, _in_short_notation)
    attributes = {key: value for key, value in node.items() if not key.startswith("__") and key != "namespace"}
    normalized = _map_children(attributes, _in_short_notation)
    return normalized["type"] if normalized.keys() == {"type"} and isinstance(normalized["type"], str) else normalized


def _map_children(node: Any, change: Callable[[Any], Any]) -> Any:  # noqa: ANN401 - any JSON value
    """Apply `change` to the children of `node`, except to default values, which are not schemas."""
    if isinstance(node, list):
        return [change(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {key: value if key == "default" else change(value) for key, value in node.items()}


def fingerprint(text: str) -> str:
    """Return the SHA-256 of the schema's parsing canonical form, in hex. Docs, defaults and aliases are ignored."""
    canonical = to_parsing_canonical_form(json.loads(text))
    return hashlib.sha256(canonical.encode()).hexdigest()


def without_docs(text: str) -> str:
    """Return the schema as compact JSON, without its `doc` attributes."""
    return compact(_remove_docs(json.loads(text)))


def _remove_docs(node: Any) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(node, dict):
        node = {key: value for key, value in node.items() if key != "doc"}
    return _map_children(node, _remove_docs)
