"""Encode Python values exactly as JSON text for a jsonb column.

The encoder of the standard library can write a Decimal only as a float. It also accepts NaN, NUL and lone surrogates,
which jsonb rejects.
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
"""Maximum nesting, far below the limit of PostgreSQL's JSON parser. A deeper value most likely contains itself."""

# Limits of PostgreSQL's numeric; jsonb stores every JSON number as numeric.
_MAX_WHOLE_DIGITS = 131_072
_MAX_SCALE = 16_383

_json_text = json.JSONEncoder(ensure_ascii=False).encode


class NotEncodableError(Exception):
    """JSON or jsonb cannot represent a value. Internal to this package.

    `reason` does not contain the value. `path` is filled while the error propagates through the containers, innermost
    key or index first, so that encoding valid values has no overhead.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path: list[str] = []

    def location(self, root: str) -> str:
        """Return the path from `root` to the value, such as `payload.lines[2].price`."""
        return root + "".join(reversed(self.path))


def to_json(value: object) -> str:
    """Return the JSON text of a value. Numbers keep all digits, and times are in UTC.

    Mapping -> object, list and tuple -> array, Decimal -> number, date and aware datetime -> ISO 8601 text, UUID ->
    text, Enum -> its value. Raises NotEncodableError for other values.
    """
    return _encode(value, 0)


def invalid_text_reason(value: str) -> str:
    """Return the reason why PostgreSQL cannot store the text, or an empty text."""
    if "\0" in value:
        return "contains a NUL character, which PostgreSQL cannot store"
    try:
        value.encode()
    except UnicodeEncodeError:
        return "contains half of a surrogate pair, which is not valid Unicode text"
    return ""


def _encode(value: object, depth: int) -> str:
    if not isinstance(value, dict | list | tuple | Mapping):
        return _encode_scalar(value)
    if depth >= MAX_DEPTH:
        raise NotEncodableError(f"is nested more than {MAX_DEPTH} levels deep")
    if isinstance(value, Mapping):
        return _encode_object(value, depth)
    return f"[{','.join(_encode_items(enumerate(value), depth))}]"


def _encode_object(value: Mapping[object, object], depth: int) -> str:
    keys = [_valid_key(key) for key in value]
    texts = _encode_items(zip(keys, value.values(), strict=True), depth)
    return f"{{{','.join(f'{_json_text(key)}:{text}' for key, text in zip(keys, texts, strict=True))}}}"


def _valid_key(key: object) -> str:
    if not isinstance(key, str):
        raise NotEncodableError(f"has a key that is not text: {type(key).__module__}.{type(key).__qualname__}")
    if reason := invalid_text_reason(key):
        raise NotEncodableError(f"has a key that {reason}")
    return str.__str__(key)  # str() of a member of a str Enum would return Class.MEMBER


def _encode_items(items: Iterable[tuple[int | str, object]], depth: int) -> list[str]:
    """Return the JSON text of each item. If an item cannot be encoded, add its key or index to the error's path."""
    texts: list[str] = []
    for key, item in items:
        try:
            texts.append(_encode(item, depth + 1))
        except NotEncodableError as error:
            error.path.append(f".{key}" if isinstance(key, str) else f"[{key}]")
            raise
    return texts


@singledispatch
def _encode_scalar(value: object) -> str:
    raise NotEncodableError(f"has no JSON form: {type(value).__module__}.{type(value).__qualname__}")


@_encode_scalar.register
def _(value: bool | None) -> str:
    return _json_text(value)


@_encode_scalar.register
def _(value: str) -> str:
    if reason := invalid_text_reason(value):
        raise NotEncodableError(reason)
    return _json_text(value)


@_encode_scalar.register
def _(value: int) -> str:
    try:
        return int.__repr__(value)  # the repr of an IntEnum is not a number
    except ValueError:  # Python limits the number of digits for this conversion
        raise NotEncodableError("is an integer with too many digits for Python's conversion to text") from None


@_encode_scalar.register
def _(value: float) -> str:
    if not math.isfinite(value):
        raise NotEncodableError("is not a finite number")
    return float.__repr__(value)


@_encode_scalar.register
def _(value: Decimal) -> str:
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int):
        raise NotEncodableError("is not a finite number")
    if value.adjusted() >= _MAX_WHOLE_DIGITS or -exponent > _MAX_SCALE:
        raise NotEncodableError("is a decimal outside the range of PostgreSQL's numeric")
    return Decimal.__str__(value)  # "1E+3" is also a valid JSON number


@_encode_scalar.register
def _(value: datetime) -> str:
    if value.utcoffset() is None:
        raise NotEncodableError("is a datetime without a time zone: set its tzinfo, for example to UTC")
    try:
        return f'"{value.astimezone(UTC).isoformat()}"'
    except OverflowError:
        raise NotEncodableError("is a datetime outside the years 1 to 9999 in UTC") from None


@_encode_scalar.register
def _(value: date) -> str:
    return f'"{value.isoformat()}"'


@_encode_scalar.register
def _(value: UUID) -> str:
    return f'"{value}"'


@_encode_scalar.register
def _(value: Enum) -> str:
    return to_json(value.value)
