"""Keeps expressions that only name columns, so that they are built once and not for every batch."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache, wraps
from typing import ParamSpec, TypeVar

from pyspark import SparkContext

_P = ParamSpec("_P")
_R = TypeVar("_R")
_KEPT = 256
"""Of each function: a few for every schema that a topic of this process has."""


def reused(build: Callable[_P, _R]) -> Callable[_P, _R]:
    """`build`, called once for each set of (hashable, positional) arguments and each JVM.

    Every part of an expression is a call to the JVM: those of one batch are thousands, a second and more. What is
    built must not belong to a DataFrame: columns by name, literals, functions of them.
    """

    @lru_cache(maxsize=_KEPT)
    def kept(_jvm: object, arguments: tuple[Hashable, ...]) -> _R:
        return build(*arguments)  # type: ignore[call-arg, arg-type]  # the wrapper below has the signature

    @wraps(build)
    def found(*arguments: _P.args, **named: _P.kwargs) -> _R:
        if named:
            message = f"{build.__name__} takes positional arguments"
            raise TypeError(message)
        return kept(SparkContext._gateway, arguments)

    return found
