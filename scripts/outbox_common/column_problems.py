"""Find fields that cannot be columns of a materialized table because of their names or types.

Tables, targets and jobs reserve some names. Column names are case-insensitive in Spark and the lake formats, so this
module compares names in lower case.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from outbox_events.schemas.avro_schema import Node, Schema, kind_of

INTERNAL_PREFIX = "__outbox_"
"""Prefix of every column that the jobs use next to the fields of a record but do not store in the table."""
MAX_POSTGRES_BYTES = 63
"""Maximum length in bytes of a name in PostgreSQL. The server truncates longer names without an error."""

TABLE_COLUMNS = (
    "aggregate_id", "_sequence", "_partition_epoch", "_partition", "_offset", "_timestamp",
    "_stale", "_deleted_at", "_valid_from", "_valid_to",
)  # fmt: skip
"""Columns that tables have in addition to the fields. Whether a table has the last three depends on its mode."""

_NAMES_BY_KIND: Mapping[str, frozenset[str]] = {
    "delta": frozenset(
        {"_change_type", "_commit_timestamp", "_commit_version", "_condition_", "_file_name_", "_row_dropped_"}
        | {"_row_id_", "_source_row_index", "_source_row_present_", "_target_row_index_", "_target_row_present_"}
        | {"__delta_internal_is_row_deleted", "__delta_internal_row_index", "_metadata"}
    ),
    "postgres": frozenset({"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"}),
    "iceberg": frozenset(
        {"_file", "_pos", "_deleted", "_spec_id", "_row_id", "_last_updated_sequence_number", "_kafka_partition"}
        | {"__row_id", "__row_operation", "__row_from_source", "__row_from_target"}
    ),
}
"""Reserved names by kind of target: the columns of Delta's MERGE and change data feed; PostgreSQL's system columns;
Iceberg's metadata columns, its stored name for `_partition`, and the columns of Spark's MERGE into Iceberg tables."""
TARGET_KINDS = tuple(_NAMES_BY_KIND)
MAX_PRECISION = 38
"""Maximum precision of Spark's decimal type."""


def ambiguous_names(fields: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the field names in a record that differ from another field name of this record only in case."""
    counts = Counter(str(field["name"]).lower() for field in fields)
    return [str(field["name"]) for field in fields if counts[str(field["name"]).lower()] > 1]


def reserved_by(name: str, kind: str = "") -> str | None:
    """Return the reason why a field cannot have this name in a target of this kind, or None.

    If `kind` is empty, check only the reasons that apply to every kind of target.
    """
    lower_name = name.lower()
    if lower_name in TABLE_COLUMNS:
        return "tables reserve this name for their own column"
    if lower_name.startswith(INTERNAL_PREFIX):
        return f"the prefix {INTERNAL_PREFIX} is reserved for the jobs"
    if lower_name in _NAMES_BY_KIND.get(kind, ()):
        return f"{kind} reserves this name"
    if kind == "postgres" and len(name.encode()) > MAX_POSTGRES_BYTES:
        return f"it is longer than {MAX_POSTGRES_BYTES} bytes"
    return None


@dataclass(frozen=True)
class ColumnProblem:
    """A problem with a field, and how to correct it."""

    message: str
    remedy: str


def column_problems(schema: Schema, target_kinds: Sequence[str] = ("",)) -> Iterator[ColumnProblem]:
    """Yield the problems that targets of these kinds have with the fields of a schema. The kind "" means any target."""
    fields = schema.root["fields"]
    ambiguous, types = ambiguous_names(fields), _TypeCheck(schema)
    for entry in fields:
        name = str(entry["name"])
        reasons = [reason for kind in target_kinds if (reason := reserved_by(name, kind)) is not None]
        if reasons:
            yield ColumnProblem(f"field {name} cannot have this name: {reasons[0]}", "rename the field")
        elif name in ambiguous:
            yield ColumnProblem(f"field {name} differs from another field only in case", "rename one of the fields")
        problem = types.problem(entry["type"], frozenset({schema.root["name"]}))
        if problem is not None:
            yield ColumnProblem(f"field {name} cannot be a column: {problem.message}", problem.remedy)


@dataclass
class _TypeCheck:
    """Searches for types that a column cannot have. Visits each named type only once."""

    schema: Schema
    known: dict[str, ColumnProblem | None] = field(default_factory=dict)
    """Mapping from the full name of each visited record to its first problem, or None."""

    def problem(self, node: Node, enclosing: frozenset[str]) -> ColumnProblem | None:
        """Return the first problem in a type. `enclosing` contains the full names of the outer records."""
        definition = self.schema.definition(node)
        if isinstance(definition, list):
            return self._first(definition, enclosing)
        if not isinstance(definition, dict):
            return None
        if kind_of(definition) in ("record", "error"):
            return self._record(definition, enclosing)
        parts = [definition[key] for key in ("items", "values") if key in definition]
        return _decimal_problem(definition) or self._first(parts, enclosing)

    def _first(self, parts: Sequence[Node], enclosing: frozenset[str]) -> ColumnProblem | None:
        problems = (self.problem(part, enclosing) for part in parts)
        return next((problem for problem in problems if problem is not None), None)

    def _record(self, definition: Mapping[str, Any], enclosing: frozenset[str]) -> ColumnProblem | None:
        name = str(definition["name"])
        if name in enclosing:
            return ColumnProblem(f"the record {name} is recursive", "replace the inner record with its key")
        if name not in self.known:
            # Struct field names are case-insensitive in Spark and the lake formats.
            ambiguous = ambiguous_names(definition["fields"])
            if ambiguous:
                message = f"the field {ambiguous[0]} of its record {name} differs from another field only in case"
                self.known[name] = ColumnProblem(message, f"rename one of the fields of {name}")
            else:
                types = [entry["type"] for entry in definition["fields"]]
                self.known[name] = self._first(types, enclosing | {name})
        return self.known[name]


def _decimal_problem(definition: Mapping[str, Any]) -> ColumnProblem | None:
    # As Avro specifies, a logical type is ignored if the underlying type does not support it.
    if definition.get("logicalType") != "decimal" or kind_of(definition) not in ("bytes", "fixed"):
        return None
    precision, scale = definition.get("precision"), definition.get("scale", 0)
    if precision is None:
        return ColumnProblem("it is a decimal without a precision", "add `precision` to the type")
    if type(precision) is not int or precision < 1:
        message = f"it is a decimal of precision {precision!r}, which is not a positive integer"
        return ColumnProblem(message, "correct `precision` of the type")
    maximum = min(MAX_PRECISION, _fixed_digits(definition))
    if precision > maximum:
        message = f"it is a decimal of precision {precision}; the maximum is {maximum}"
        return ColumnProblem(message, f"use a precision of at most {maximum}, or the type string")
    if type(scale) is not int or not 0 <= scale <= precision:
        message = f"it is a decimal of scale {scale!r}, which is not an integer from 0 to the precision {precision}"
        return ColumnProblem(message, "correct `scale` of the type")
    return None


def _fixed_digits(definition: Mapping[str, Any]) -> int:
    """Return the maximum precision of a decimal. It depends on the size of a fixed type. Bytes allow MAX_PRECISION."""
    if kind_of(definition) != "fixed":
        return MAX_PRECISION
    # A larger size does not change the maximum, and computing a power with a size from a file could take long.
    size = min(int(definition["size"]), MAX_PRECISION)
    return len(str(2 ** (8 * size - 1) - 1)) - 1 if size else 0
