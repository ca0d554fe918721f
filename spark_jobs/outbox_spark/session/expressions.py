"""Column expressions that are built once per process, and evaluated once per row."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache, wraps
from typing import ParamSpec, TypeVar

from pyspark import SparkContext
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

_P = ParamSpec("_P")
_R = TypeVar("_R")
_MAX_ENTRIES = 256
"""Cache entries per function; each schema of a topic needs a few."""


def cached_expressions(build: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorate `build` so that it is called once for each set of (hashable, positional) arguments and each JVM.

    Building an expression requires a call to the JVM for each of its parts: thousands of calls, which take more than a
    second, for each batch. The expression must not be bound to a DataFrame: columns by name, literals, functions of
    them.
    """

    @lru_cache(maxsize=_MAX_ENTRIES)
    def cached(_jvm: object, arguments: tuple[Hashable, ...]) -> _R:
        return build(*arguments)  # type: ignore[call-arg, arg-type]  # the wrapper below has the signature

    @wraps(build)
    def wrapper(*arguments: _P.args, **named: _P.kwargs) -> _R:
        if named:
            raise TypeError(f"{build.__name__} takes positional arguments")
        return cached(SparkContext._gateway, arguments)

    return wrapper


def prevent_inlining(expression: Column) -> Column:
    """Return an expression with the same value that the optimizer does not copy into each use of its column.

    Otherwise each field of a record would decode the record again, and the optimization of plans for JSON, which is
    parsed in three steps, would take minutes. The optimizer does not copy expressions with rand().
    """
    # Without a fixed seed the generated code would differ each time and be compiled again.
    return F.when(F.rand(0) >= 0, expression)
