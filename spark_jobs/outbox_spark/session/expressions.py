"""Cache column expressions, and prevent Spark from evaluating an expression more than once per row."""

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
"""Maximum number of cache entries per function. Each schema of a topic uses a few entries."""


def cached_expressions(build: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorate `build` so that its results are cached by JVM and arguments, which must be positional and hashable.

    Building an expression calls the JVM for each of its parts. Without the cache, every batch would make thousands of
    calls, which would take more than a second. The expression may consist of columns by name, literals and functions,
    but must not be bound to a DataFrame.
    """

    @lru_cache(maxsize=_MAX_ENTRIES)
    def cached(_jvm: object, arguments: tuple[Hashable, ...]) -> _R:
        return build(*arguments)  # type: ignore[call-arg, arg-type]  # `wrapper` has the signature of `build`

    @wraps(build)
    def wrapper(*arguments: _P.args, **keyword_arguments: _P.kwargs) -> _R:
        if keyword_arguments:
            raise TypeError(f"{build.__name__} takes only positional arguments")
        return cached(SparkContext._gateway, arguments)

    return wrapper


def prevent_inlining(expression: Column) -> Column:
    """Return an expression that has the same value, but is not inlined by the optimizer where its column is used.

    If the expression were inlined, the record would be decoded again for each field, and optimizing the plan for
    JSON values, which are parsed in three steps, would take minutes. The optimizer does not inline rand().
    """
    # With a random seed, the generated code of each query would be different and would have to be compiled.
    return F.when(F.rand(0) >= 0, expression)
