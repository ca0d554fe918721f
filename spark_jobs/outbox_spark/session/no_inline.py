"""Prevents Spark's optimizer from copying an expression into every use of its column."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812


def no_inline(expression: Column) -> Column:
    """Return an expression with the same value that is evaluated in its own projection.

    The optimizer pushes a filter on a derived column down and replaces column names by their expressions: a decoded
    record would be decoded again for each of its fields, and JSON, which is parsed in three steps, would become plans
    that take minutes. Expressions that are not deterministic are not moved.
    """
    # Without a fixed seed the generated code would differ each time and be compiled again.
    return F.when(F.rand(0) >= 0, expression)
