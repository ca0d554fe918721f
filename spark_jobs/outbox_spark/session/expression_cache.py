"""Cache of expressions that refer to columns by name, so that they are not built again for every batch."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache, wraps
from typing import ParamSpec, TypeVar

from pyspark import SparkContext

_P = ParamSpec("_P")
_R = TypeVar("_R")
_MAX_ENTRIES = 256
"""Of each function: a few for every schema that a topic of this process has."""


def cached_expressions(build: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorate `build` so that it is called once for each set of (hashable, positional) arguments and each JVM.

    Every part of an expression is a call to the JVM: those of one batch are thousands and take a second and more. The
    result must not belong to a DataFrame: columns by name, literals, functions of them.
    """

    @lru_cache(maxsize=_MAX_ENTRIES)
    def cached(_jvm: object, arguments: tuple[Hashable, ...]) -> _R:
        return build(*arguments)  # type: ignore[call-arg, arg-type]  # the wrapper below has the signature

    @wraps(build)
    def wrapper(*arguments: _P.args, **named: _P.kwargs) -> _R:
        if named:
            message = f"{build.__name__} takes positional arguments"
            raise TypeError(message)
        return cached(SparkContext._gateway, arguments)

    return wrapper
