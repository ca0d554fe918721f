"""The one ordering rule: (source_sequence, partition_epoch, offset), the newest wins.

source_sequence is a record header, `<4 hex source epoch>_<16 hex last commit LSN>-<16 hex event LSN>`.
It begins with the source epoch and has a fixed width, so that the order of the text is the order of the
versions: epoch, then commit, then event. Records of other topics have none; they are ordered by
(partition_epoch, offset). Both compare in Spark, in PostgreSQL (collation "C") and in Delta alike.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from outbox_spark.decoding.framing import last_header

SEQUENCE_HEADER = "source_sequence"
SEQUENCE_LENGTH = 38

VERSION_COLUMNS = ["_sequence", "_partition_epoch", "_offset"]
"""Columns of every target that together are the version of a row. `_sequence` is '' where records have none:
a NULL would make every comparison unknown."""

# How a record carries its sequence, as bits, so that one aggregate tells which kinds occur.
NO_SEQUENCE = 1
GOOD_SEQUENCE = 2
MALFORMED_SEQUENCE = 4


def sequence_of(headers: Column) -> Column:
    """The source_sequence header as binary; NULL without one.

    Of several headers of that name the last counts, as in Kafka's own `Headers.lastHeader`.
    """
    return last_header(headers, SEQUENCE_HEADER)


def sequence_kind(sequence: Column) -> Column:
    """Which of the three kinds above a sequence is, as an integer with one bit set."""
    return (
        F.when(sequence.isNull(), F.lit(NO_SEQUENCE))
        .when(F.octet_length(sequence) == SEQUENCE_LENGTH, F.lit(GOOD_SEQUENCE))
        .otherwise(F.lit(MALFORMED_SEQUENCE))
    )


def version_sql(alias: str) -> str:
    """The version of a row of `alias` as a Spark SQL expression that compares with > and <=."""
    columns = ", ".join(f"{alias}.`{name}`" for name in VERSION_COLUMNS)
    return f"struct({columns})"
