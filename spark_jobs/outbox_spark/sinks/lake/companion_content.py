"""Know the newest entry of a companion table without reading the table, as long as no other run has changed it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from outbox_spark.sinks.lake.storage import LakeStorage


@dataclass(frozen=True)
class Content:
    """A version of a companion table ("" without entries), and the highest `_sequence` of its entries."""

    version: str = ""
    newest: str = ""


def current_content(
    storage: LakeStorage, suffix: str, known: Content | None, entries: Callable[[], DataFrame]
) -> Content:
    """Return the content now. `entries` is called and read if the table has changed since `known`.

    A companion table changes by a run that failed before its commit, by a run that overlaps with this one, and by
    maintenance.
    """
    version = storage.versions(suffix)[0] if storage.exists(suffix) else ""
    if known is not None and known.version == version:
        return known
    newest = entries().agg(F.max("_sequence")).collect()[0][0] if version else None
    return Content(version, newest or "")
