"""Names that fields of a materialized schema cannot have, because a table, its target or a job uses them.

Column names of Spark and the lake formats are case-insensitive, so names are compared in lower case.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

INTERNAL_PREFIX = "__outbox_"
"""Prefix of all columns that the jobs add to the fields of a record and do not store in the table."""
MAX_POSTGRES_BYTES = 63
"""Maximum length of a name in PostgreSQL in bytes; the server truncates longer names without an error."""

TABLE_COLUMNS = (
    "aggregate_id", "_sequence", "_partition_epoch", "_partition", "_offset", "_timestamp",
    "_stale", "_deleted_at", "_valid_from", "_valid_to",
)  # fmt: skip
"""Columns of tables besides the fields; which of the last three a table has depends on its mode."""

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
"""By kind of target: columns of Delta's MERGE and change data feed; PostgreSQL's system columns; Iceberg's metadata
columns, the stored name of `_partition`, and columns of Spark's MERGE into Iceberg tables."""


def ambiguous_names(fields: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of the fields of a record that differ from another name only in case."""
    counts = Counter(str(field["name"]).lower() for field in fields)
    return [str(field["name"]) for field in fields if counts[str(field["name"]).lower()] > 1]


def reserved_by(name: str, kind: str = "") -> str | None:
    """Return what prevents a field from having this name in a target of this kind, as text; None if nothing does.

    Without a kind, only the reasons are considered that apply to all targets.
    """
    lower_name = name.lower()
    if lower_name in TABLE_COLUMNS:
        return "every table can have a column of this name"
    if lower_name.startswith(INTERNAL_PREFIX):
        return f"the prefix {INTERNAL_PREFIX} is reserved for the jobs"
    if lower_name in _NAMES_BY_KIND.get(kind, ()):
        return f"{kind} reserves this name"
    if kind == "postgres" and len(name.encode()) > MAX_POSTGRES_BYTES:
        return f"it is longer than {MAX_POSTGRES_BYTES} bytes"
    return None
