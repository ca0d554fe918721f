"""Parquet: a table takes over the content of another, by moving its files below a new pointer."""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import TYPE_CHECKING

from outbox_spark.parquet_reader import POINTERS, pointer_name
from outbox_spark.sinks.parquet_upkeep import SNAPSHOT_PREFIX

if TYPE_CHECKING:
    from outbox_spark.sinks.parquet import ParquetTable


def replace_by(table: ParquetTable, shadow: ParquetTable) -> None:
    """Give `table` rows, ledger and progress of `shadow`; the shadow's quarantine is added to the table's.

    Raises OverlapError when a run has committed to the table since it was entered: the shadow may know less. Raises
    RefusedError when there is no shadow.
    """
    table._load()
    if table._pointer != table._entered:
        raise table._overtaken()
    shadow._load()
    found = shadow._known()
    if shadow._quarantine.exists():
        table._add_quarantined(shadow._quarantined())
    number = 1 if table._pointer is None else table._pointer.number + 1
    folder = f"{SNAPSHOT_PREFIX}{pointer_name(number)}-{secrets.token_hex(8)}"
    new = replace(found, number=number, rows=f"{folder}/rows", tombstones=f"{folder}/tombstones")
    # A shadow that is half moved must not look whole to the rebuild after a crash. A look at its folders does not
    # tell: object stores move file by file.
    shadow._files.remove(POINTERS)
    table._files.move(found.rows, new.rows, of=shadow._files)
    table._files.move(found.tombstones, new.tombstones, of=shadow._files)
    table._publish(new)
    shadow.drop()
    shadow._quarantine.remove()
