"""Keep the plan of a table's small batches, so that the next small batch is executed without being planned again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame

from outbox_spark.jobs.model import ReadRange
from outbox_spark.kafka.record_reader import RangeReader


@dataclass
class PreparedRows:
    """Decoded rows of the previous small batch. Each execution of `rows` reads the range that was set last.

    `key` contains everything that the plan depends on, except for the range.
    """

    key: object = None
    reader: RangeReader | None = None
    rows: DataFrame | None = None

    def of(
        self,
        key: object,
        read_range: ReadRange,
        open_reader: Callable[[ReadRange], RangeReader],
        plan: Callable[[DataFrame], DataFrame],
    ) -> DataFrame:
        """Return the rows of a range. If the key has changed, `plan` decodes the frame of a new reader."""
        if self.reader is not None and self.rows is not None and self.key == key:
            self.reader.set(read_range)
            return self.rows
        self.reader = open_reader(read_range)
        self.key, self.rows = key, plan(self.reader.frame)
        return self.rows
