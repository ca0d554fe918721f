"""Python values as the JSON text of a jsonb column: exactly, or not at all.

The standard encoder is no help: it can write a Decimal only by way of float, and it accepts NaN,
NUL and lone surrogates, which jsonb rejects after the transaction is already under way.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from functools import singledispatch
from uuid import UUID

MAX_DEPTH = 100
"""Far below what the server's stack takes; above it, the value most likely contains itself."""

# What PostgreSQL's numeric can hold; jsonb keeps every JSON number as one.
_MAX_WHOLE_DIGITS = 131_072
_MAX_SCALE = 16_383

_quoted = json.JSONEncoder(ensure_ascii=False).encode


class UnfitError(Exception):
    """A value that JSON or jsonb cannot hold; never leaves this package.

    `reason` says why without showing the value. `path` grows while the error passes the containers
    around it, innermost step first, so that nothing is spent on paths when all is well.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path: list[str] = []

    def where(self, root: str) -> str:
        """The way from `root` to the value, such as `payload.lines[2].price`."""
        return root + "".join(reversed(self.path))


def to_json(value: object) -> str:
    """The JSON text of a value; numbers keep every digit, times are in UTC.

    Mapping -> object, list and tuple -> array, Decimal -> number, date and aware datetime -> ISO
    8601 text, UUID -> text, Enum -> its value. Raises UnfitError for everything else.
    """
    return _encode(value, 0)


def text_reason(value: str) -> str:
    """Why PostgreSQL cannot store the text; empty when it can."""
    if "\0" in value:
        return "contains a NUL character, which PostgreSQL cannot store"
    try:
        value.encode()
    except UnicodeEncodeError:
        return "contains half of a surrogate pair, which is not valid Unicode text"
    return ""


@singledispatch
def _encode(value: object, depth: int) -> str:  # noqa: ARG001  (the containers use it)
    reason = f"has no JSON form: {type(value).__module__}.{type(value).__qualname__}"
    raise UnfitError(reason)


@_encode.register
def _(value: None, depth: int) -> str:  # noqa: ARG001
    return "null"


@_encode.register
def _(value: bool, depth: int) -> str:  # noqa: ARG001, FBT001
    return "true" if value else "false"


@_encode.register
def _(value: str, depth: int) -> str:  # noqa: ARG001
    if reason := text_reason(value):
        raise UnfitError(reason)
    return _quoted(value)


@_encode.register
def _(value: int, depth: int) -> str:  # noqa: ARG001
    try:
        return int.__repr__(value)  # an IntEnum's own repr is not a number
    except ValueError:  # Python's own bound on converting long integers
        raise UnfitError("is an integer of too many digits") from None


@_encode.register
def _(value: float, depth: int) -> str:  # noqa: ARG001
    if not math.isfinite(value):
        raise UnfitError("is not a finite number")
    return float.__repr__(value)


@_encode.register
def _(value: Decimal, depth: int) -> str:  # noqa: ARG001
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int):
        raise UnfitError("is not a finite number")
    if value.adjusted() >= _MAX_WHOLE_DIGITS or -exponent > _MAX_SCALE:
        raise UnfitError("is a decimal beyond what PostgreSQL's numeric can hold")
    return Decimal.__str__(value)  # "1E+3" is a JSON number too


@_encode.register
def _(value: datetime, depth: int) -> str:  # noqa: ARG001
    if value.utcoffset() is None:
        raise UnfitError("is a datetime without a time zone: give it one, UTC for instance")
    try:
        return f'"{value.astimezone(UTC).isoformat()}"'
    except OverflowError:
        raise UnfitError("is a datetime outside the years 1 to 9999 in UTC") from None


@_encode.register
def _(value: date, depth: int) -> str:  # noqa: ARG001
    return f'"{value.isoformat()}"'


@_encode.register
def _(value: UUID, depth: int) -> str:  # noqa: ARG001
    return f'"{value}"'


@_encode.register
def _(value: Enum, depth: int) -> str:
    return _encode(value.value, depth)


@_encode.register(list)
@_encode.register(tuple)
def _(value: list[object] | tuple[object, ...], depth: int) -> str:
    return f"[{','.join(_items(enumerate(value), depth))}]"


@_encode.register
def _(value: Mapping, depth: int) -> str:  # type: ignore[type-arg]  # singledispatch wants the bare class
    for key in value:
        if not isinstance(key, str):
            reason = f"has a key that is not text: {type(key).__module__}.{type(key).__qualname__}"
            raise UnfitError(reason)
        if reason := text_reason(key):
            reason = f"has a key that {reason}"
            raise UnfitError(reason)
    items = _items(value.items(), depth)
    return f"{{{','.join(f'{_quoted(key)}:{item}' for key, item in zip(value, items, strict=True))}}}"


def _items(items: Iterable[tuple[int | str, object]], depth: int) -> list[str]:
    """The JSON text of each item of a container; an error learns the step that leads to the item."""
    if depth >= MAX_DEPTH:
        reason = f"is nested more than {MAX_DEPTH} levels deep"
        raise UnfitError(reason)
    texts: list[str] = []
    for step, item in items:
        try:
            texts.append(_encode(item, depth + 1))
        except UnfitError as error:
            error.path.append(f".{step}" if isinstance(step, str) else f"[{step}]")
            raise
    return texts
