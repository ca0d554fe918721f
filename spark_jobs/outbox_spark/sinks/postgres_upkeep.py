"""What is done to a postgres table beside writing batches: reconcile, rebuild, ledger, maintenance."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

if TYPE_CHECKING:
    from outbox_spark.sinks.postgres import PostgresTable


def versions(table: PostgresTable) -> DataFrame:
    raise NotImplementedError


def forget_deletions(table: PostgresTable, before: datetime) -> int:
    raise NotImplementedError


def replace_by(table: PostgresTable, shadow: PostgresTable) -> None:
    raise NotImplementedError


def drop(table: PostgresTable) -> None:
    raise NotImplementedError


def maintain(table: PostgresTable) -> str:
    raise NotImplementedError
