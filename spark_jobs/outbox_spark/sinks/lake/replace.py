"""What the lake formats share when a table takes over the content of another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from outbox_spark.errors import RefusedError
from outbox_spark.sinks.target_table import QUARANTINE_SUFFIX, TOMBSTONES_SUFFIX

if TYPE_CHECKING:
    from outbox_spark.sinks.lake.table import LakeTable


def take_beside(table: LakeTable, shadow: LakeTable) -> dict[str, Any]:
    """Give `table` the deletions and the quarantine of `shadow`; returns the shadow's progress.

    They go first, as in every run: they are true whatever follows, and deletions carry the shadow's ledger_id, which
    means nothing until the commit of the rows names it. Raises RefusedError when there is no shadow, OverlapError when
    the table's lease was lost.
    """
    if table._lease is not None:
        table._lease.check()
    if shadow.committed() is None or shadow._stored is None:
        message = f"{shadow._label} does not exist: there is nothing that could replace {table._label}"
        raise RefusedError(message, "run the rebuild again")
    if shadow._there(TOMBSTONES_SUFFIX):
        table._append(TOMBSTONES_SUFFIX, shadow._entries())
    if shadow._there(QUARANTINE_SUFFIX):
        table._add_quarantined(shadow._read(QUARANTINE_SUFFIX))
    return shadow._stored
