"""The ordering rule of all sinks: the newest record has the greatest (source_sequence, partition_epoch, offset).

source_sequence is a record header of the form `<4 hex source epoch>_<16 hex last commit LSN>-<16 hex event LSN>`. All
parts have a fixed width, so a text comparison compares the epoch first, then the commit, then the event. Records
without this header are ordered by (partition_epoch, offset). Spark (for Delta and Iceberg) and PostgreSQL (collation
"C") compare these values in the same way.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

SEQUENCE_LENGTH = 38
SEQUENCE_PATTERN = "^[0-9a-f]{4}_[0-9a-f]{16}-[0-9a-f]{16}$"

VERSION_COLUMNS = ["_sequence", "_partition_epoch", "_offset"]
"""Columns that form the version of a row in every target. `_sequence` is '' for records without the header, because the
result of a comparison with NULL is unknown."""

# Kinds of source_sequence. Each kind is one bit, so that a bitwise OR over the records shows which kinds occur.
NO_SEQUENCE = 1
VALID_SEQUENCE = 2
MALFORMED_SEQUENCE = 4


def sequence_kind(sequence: Column, *, required: bool) -> Column:
    """Return the kind of a source_sequence: NO_SEQUENCE, VALID_SEQUENCE or MALFORMED_SEQUENCE.

    If it is `required`, a missing source_sequence is malformed.
    """
    # The length is checked, because `$` also matches before a line feed at the end.
    is_valid = (F.octet_length(sequence) == SEQUENCE_LENGTH) & sequence.cast("string").rlike(SEQUENCE_PATTERN)
    return (
        F.when(sequence.isNull(), F.lit(MALFORMED_SEQUENCE if required else NO_SEQUENCE))
        .when(is_valid, F.lit(VALID_SEQUENCE))
        .otherwise(F.lit(MALFORMED_SEQUENCE))
    )


def version_sql(alias: str) -> str:
    """Return Spark SQL for the version of a row, as a comparable struct. `alias` is the table's alias."""
    columns = ", ".join(f"{alias}.`{name}`" for name in VERSION_COLUMNS)
    return f"struct({columns})"
