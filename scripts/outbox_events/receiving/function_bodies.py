"""Refuse objects that are not functions, and functions whose body would not run when they are called."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from outbox_events.errors import ConfigurationError


def require_body(function: Callable[..., Any] | None, *, can_be_async: bool = False) -> None:
    """Raise ConfigurationError unless `function` is a function whose body runs when it is called, or None.

    The body of a generator or coroutine function would not run. With `can_be_async`, coroutine functions are accepted.
    """
    if function is not None and not callable(function):
        raise ConfigurationError(f"{function!r} is not a function")
    while isinstance(function, partial):
        function = function.func
    for called in (function, type(function).__call__):
        if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
            raise never_run(function)
        if inspect.iscoroutinefunction(called) and not can_be_async:
            raise never_run(function, "define it with `def`")


def never_run(function: object, hint: str = "define it without yield") -> ConfigurationError:
    """Return the error for a function whose body would not run."""
    return ConfigurationError(f"the body of {getattr(function, '__qualname__', function)} would never run", hint)
