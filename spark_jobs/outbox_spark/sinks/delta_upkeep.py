"""What is done to a delta table beside writing batches: reconcile, rebuild, ledger, maintenance."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

if TYPE_CHECKING:
    from outbox_spark.sinks.delta import DeltaTable


def versions(table: DeltaTable) -> DataFrame:
    raise NotImplementedError


def forget_deletions(table: DeltaTable, before: datetime) -> int:
    raise NotImplementedError


def replace_by(table: DeltaTable, shadow: DeltaTable) -> None:
    raise NotImplementedError


def drop(table: DeltaTable) -> None:
    raise NotImplementedError


def maintain(table: DeltaTable) -> str:
    raise NotImplementedError
