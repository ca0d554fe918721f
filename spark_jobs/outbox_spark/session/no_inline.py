"""Keeps Spark's optimizer from copying an expression into every place that uses its column."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812


def once(expression: Column) -> Column:
    """The same value, computed where it stands.

    A filter on a column that is made of others is pushed down below them all, and on its way every name is replaced
    by what it stands for: a decoded record is decoded again for each of its fields, and JSON, which is made in three
    steps, grows to plans that take minutes. What is not deterministic is left where it is.
    """
    # With a seed of its own each time the compiled code would differ by it, and be compiled again.
    return F.when(F.rand(0) >= 0, expression)
