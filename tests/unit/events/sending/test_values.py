"""Python values are encoded as JSON text exactly, or rejected with an error that has the path but not the value."""

# ruff: noqa: ANN401  (values of any type are what is tested)

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from types import MappingProxyType
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox_events.sending.values import MAX_DEPTH, NotEncodableError, to_json

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | TEXT
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.decimals(allow_nan=False, allow_infinity=False)
)
NESTED = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


class Status(StrEnum):
    LENT = "LENT"


class OldStatus(str, Enum):  # noqa: UP042  (the older spelling, still common)
    LENT = "lent"


class Level(IntEnum):
    HIGH = 3


class Colour(Enum):
    RED = "red"
    BOX = (1, 2)


def exact(text: str) -> Any:
    return json.loads(text, parse_float=Decimal)


def as_decimals(value: Any) -> Any:
    """Return the expected result of `exact`, with every number with a point or an exponent as a Decimal."""
    if isinstance(value, float):
        return Decimal(repr(value))
    if isinstance(value, list):
        return [as_decimals(item) for item in value]
    if isinstance(value, dict):
        return {key: as_decimals(item) for key, item in value.items()}
    return value


@given(NESTED)
def test_encodes_json_values_unchanged(value: Any) -> None:
    assert exact(to_json(value)) == as_decimals(value)


@given(st.decimals(allow_nan=False, allow_infinity=False, places=2))
def test_decimals_keep_every_digit_and_the_scale(value: Decimal) -> None:
    back = Decimal(to_json(value))
    assert back.as_tuple() == value.as_tuple()


@given(st.datetimes(min_value=datetime(2, 1, 1), max_value=datetime(9998, 1, 1), timezones=st.timezones()))
def test_converts_times_to_utc(value: datetime) -> None:
    back = datetime.fromisoformat(json.loads(to_json(value)))
    assert back == value.astimezone(UTC)
    assert back.utcoffset() == timedelta(0)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Decimal("9999999999.99"), "9999999999.99"),
        (Decimal("0.00"), "0.00"),
        (Decimal("1E+3"), "1E+3"),
        (0.1, "0.1"),
        (True, "true"),
        (date(1583, 1, 1), '"1583-01-01"'),
        (datetime(2024, 5, 6, 7, 8, 9, 123456, UTC), '"2024-05-06T07:08:09.123456+00:00"'),
        (datetime(2024, 5, 6, 1, tzinfo=timezone(timedelta(hours=2))), '"2024-05-05T23:00:00+00:00"'),
        (UUID(int=10), '"00000000-0000-0000-0000-00000000000a"'),
        (Status.LENT, '"LENT"'),
        (OldStatus.LENT, '"lent"'),
        (Level.HIGH, "3"),
        (Colour.RED, '"red"'),
        (Colour.BOX, "[1,2]"),
        ((1, "a"), '[1,"a"]'),
        (OrderedDict(b=1, a=2), '{"b":1,"a":2}'),
        (MappingProxyType({"a": None}), '{"a":null}'),
        ({Status.LENT: 1, OldStatus.LENT: 2}, '{"LENT":1,"lent":2}'),
        ('\u2028 \U0001f4da \\ " \x01', '"\u2028 \U0001f4da \\\\ \\" \\u0001"'),
    ],
)
def test_encodes_each_type(value: Any, text: str) -> None:
    assert to_json(value) == text


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (float("nan"), "not a finite number"),
        (float("-inf"), "not a finite number"),
        (Decimal("NaN"), "not a finite number"),
        (Decimal("sNaN"), "not a finite number"),
        (Decimal("Infinity"), "not a finite number"),
        (Decimal("1E+131072"), "outside the range"),
        (Decimal("1E-16384"), "outside the range"),
        (10**5000, "too many digits"),
        (datetime(2024, 1, 1), "without a time zone"),
        (datetime.min.replace(tzinfo=timezone(timedelta(hours=1))), "outside the years"),
        (time(12), "no JSON form: datetime.time"),
        (timedelta(1), "no JSON form: datetime.timedelta"),
        (b"secret", "no JSON form: builtins.bytes"),
        ({"secret"}, "no JSON form: builtins.set"),
        (object(), "no JSON form: builtins.object"),
        ("secret\0", "NUL character"),
        ("secret\ud800", "surrogate"),
        ({1: "secret"}, "key that is not text: builtins.int"),
        ({"secret\0": 1}, "key that contains a NUL"),
        ({"\ud800": 1}, "key that contains half of a surrogate"),
    ],
    ids=lambda value: value if isinstance(value, str) and value.isascii() and "\0" not in value else "value",
)
def test_rejects_values_with_path_and_without_value(value: Any, reason: str) -> None:
    with pytest.raises(NotEncodableError, match=reason) as raised:
        to_json({"lines": [0, {"price": value}]})
    assert raised.value.location("payload") == "payload.lines[1].price"
    assert "secret" not in str(raised.value)


def test_rejects_a_value_that_contains_itself() -> None:
    cyclic: list[Any] = []
    cyclic.append(cyclic)
    with pytest.raises(NotEncodableError, match=f"more than {MAX_DEPTH} levels"):
        to_json(cyclic)


def test_rejects_values_beyond_the_depth_limit() -> None:
    def nested(levels: int) -> Mapping[str, Any]:
        return {"a": nested(levels - 1)} if levels > 1 else {}

    assert to_json(nested(MAX_DEPTH))
    with pytest.raises(NotEncodableError):
        to_json(nested(MAX_DEPTH + 1))
