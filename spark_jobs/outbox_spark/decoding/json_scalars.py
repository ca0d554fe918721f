"""Convert JSON scalars (variants) to values of Avro types. A scalar that is not valid for the type becomes NULL."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from outbox_events.schemas.avro_schema import Node, kind_of
from outbox_spark.decoding.columns import UUID_PATTERN
from outbox_spark.decoding.json_text import has_kind

Converter = Callable[[Column], Column]

# A double can represent every integer up to this one exactly.
_MAX_EXACT_INTEGER = 2**53
INTEGER_PATTERN = r"^-?[0-9]+\z"  # unlike $, \z does not match before a line feed at the end
_DECIMAL_PATTERN = r"^-?[0-9]+(\.[0-9]+)?\z"
_DATE_PATTERN = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME_PATTERN = r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
_UTC_OFFSET_PATTERN = r"(Z|[+-][0-9]{2}(:?[0-9]{2})?)"
_SECONDS_PER_DAY = 86_400
# For each unit, the number of fraction digits and the function that converts a number of units to a timestamp.
_UNITS: Mapping[str, tuple[int, Converter]] = {"millis": (3, F.timestamp_millis), "micros": (6, F.timestamp_micros)}


def converter(node: Node) -> Converter:
    """Return the conversion for a scalar Avro type; an unknown logical type is ignored."""
    kind, definition = kind_of(node), node if isinstance(node, dict) else {}
    logical = _LOGICAL_TYPES.get((kind, str(definition.get("logicalType", ""))))
    convert = logical or _TYPES.get(kind)
    return lambda json: F.lit(None) if convert is None else convert(definition, json)


def _string(json: Column) -> Column:
    return F.when(has_kind(json, "STRING"), F.try_variant_get(json, "$", "string"))


def _boolean(json: Column) -> Column:
    return F.when(has_kind(json, "BOOLEAN"), F.try_variant_get(json, "$", "boolean"))


def _long(json: Column) -> Column:
    """Return an integer as a long; 1.0 and 1e3 are accepted as integers."""
    text = F.try_variant_get(json, "$", "string")
    number = F.try_variant_get(json, "$", "double")
    is_exact = (number == F.floor(number)) & (F.abs(number) < F.lit(_MAX_EXACT_INTEGER))
    return (
        F.when(has_kind(json, "BIGINT"), F.try_variant_get(json, "$", "long"))
        .when(has_kind(json, "DECIMAL") & F.rlike(text, F.lit(INTEGER_PATTERN)), text.try_cast("long"))
        .when(has_kind(json, "DOUBLE") & is_exact, number.try_cast("long"))
    )


def _int(json: Column) -> Column:
    return _long(json).try_cast("int")


def _floating_point(json: Column, kind: str) -> Column:
    is_number = has_kind(json, "BIGINT") | has_kind(json, "D")  # matches DECIMAL and DOUBLE
    number = F.try_variant_get(json, "$", "double").cast(kind)
    return F.when(is_number & (F.abs(number) < F.lit(float("inf"))), number)


def _decimal(node: Mapping[str, Any], json: Column) -> Column:
    """Accept a number, or a string that contains a number, if its digits fit the precision and scale."""
    precision, scale = int(node["precision"]), int(node.get("scale", 0))
    # A number in exponent form is parsed as a double, which is exact only for integers.
    text = (
        F.when(has_kind(json, "DOUBLE"), _long(json).cast("string"))
        .when(has_kind(json, "STRING") | has_kind(json, "BIGINT") | has_kind(json, "DECIMAL"),
              F.try_variant_get(json, "$", "string"))
    )  # fmt: skip
    digits = F.length(F.rtrim(F.regexp_extract(text, r"\.([0-9]+)\z", 1), F.lit("0")))
    is_in_scale = F.rlike(text, F.lit(_DECIMAL_PATTERN)) & (digits <= F.lit(scale))
    return F.when(is_in_scale, text.try_cast(f"decimal({precision},{scale})"))


def _bytes(json: Column) -> Column:
    r"""Accept base64, or `\x` followed by hexadecimal digits as in PostgreSQL's bytea."""
    text = _string(json)
    is_hex = F.rlike(text, F.lit(r"^\\x([0-9a-fA-F]{2})*\z"))
    return F.when(is_hex, F.try_to_binary(F.substring(text, 3, 2**31 - 1), F.lit("hex"))).otherwise(
        F.try_to_binary(text, F.lit("base64"))
    )


def _fixed(node: Mapping[str, Any], json: Column) -> Column:
    value = _bytes(json)
    return F.when(F.octet_length(value) == F.lit(int(node["size"])), value)


def _enum(node: Mapping[str, Any], json: Column) -> Column:
    text = _string(json)
    return F.when(text.isin(*node["symbols"]), text)


def _uuid(json: Column) -> Column:
    text = _string(json)
    return F.when(F.rlike(text, F.lit(UUID_PATTERN)), text)


def _uuid_bytes(node: Mapping[str, Any], json: Column) -> Column:
    if node["size"] != 16:  # noqa: PLR2004 - the size of a uuid; any other size is an ordinary fixed
        return _fixed(node, json)
    return F.unhex(F.replace(_uuid(json), F.lit("-"), F.lit("")))


def _date(json: Column) -> Column:
    """Accept an ISO 8601 date, or the number of days since 1970-01-01."""
    text = _string(json)
    from_text = F.when(F.rlike(text, F.lit(rf"^{_DATE_PATTERN}\z")), text.try_cast("date"))
    return F.coalesce(from_text, F.date_from_unix_date(_int(json)))


def _time(json: Column, unit: str, kind: str) -> Column:
    """Accept `HH:MM:SS`, optionally with a fraction, or the number of units since midnight. Return the units."""
    digits = _UNITS[unit][0]
    text = _string(json)
    seconds = (
        F.substring(text, 1, 2).try_cast("int") * 3600
        + F.substring(text, 4, 2).try_cast("int") * 60
        + F.substring(text, 7, 2).try_cast("int")
    )
    fraction = F.rpad(F.substring(text, 10, digits), digits, "0").try_cast("int")
    from_text = seconds.cast("long") * 10**digits + fraction
    number = _long(json)
    is_in_day = number.between(0, _SECONDS_PER_DAY * 10**digits - 1)
    is_valid = F.rlike(text, F.lit(rf"^{_TIME_PATTERN}{_fraction(digits)}\z"))
    return F.when(is_valid, from_text).when(is_in_day, number).cast(kind)


def _timestamp(json: Column, unit: str) -> Column:
    """Accept an ISO 8601 time with a UTC offset, or the number of units since 1970-01-01T00:00Z."""
    digits, from_number = _UNITS[unit]
    text = _string(json)
    is_valid = F.rlike(text, F.lit(rf"^{_DATE_PATTERN}[T ]{_TIME_PATTERN}{_fraction(digits)}{_UTC_OFFSET_PATTERN}\z"))
    # Spark accepts only UTC offsets with hours, a colon and minutes.
    with_colon = F.regexp_replace(text, "([+-][0-9]{2})([0-9]{2})$", "$1:$2")
    with_minutes = F.regexp_replace(with_colon, "([T ].*[+-][0-9]{2})$", "$1:00")
    return F.coalesce(F.when(is_valid, with_minutes.try_cast("timestamp")), _since_1970(json, digits, from_number))


def _local_timestamp(json: Column, unit: str) -> Column:
    """Accept an ISO 8601 time without a UTC offset, or the number of units since 1970-01-01T00:00."""
    digits, from_number = _UNITS[unit]
    text = _string(json)
    is_valid = F.rlike(text, F.lit(rf"^{_DATE_PATTERN}[T ]{_TIME_PATTERN}{_fraction(digits)}\z"))
    number = _since_1970(json, digits, from_number).cast("timestamp_ntz")  # the session's time zone is UTC
    return F.coalesce(F.when(is_valid, text.try_cast("timestamp_ntz")), number)


def _since_1970(json: Column, digits: int, from_number: Converter) -> Column:
    number = _long(json)
    # from_number() raises for values outside the range of Spark's timestamps (microseconds in 64 bits).
    limit = (2**63 - 1) // 10 ** (6 - digits)
    return from_number(F.when(number.between(-limit, limit), number))


def _fraction(digits: int) -> str:
    """Return the pattern of a fraction that has up to `digits` digits and, after these, only zeros."""
    return rf"(\.[0-9]{{1,{digits}}}0*)?"


_LOGICAL_TYPES: Mapping[tuple[str, str], Callable[[Mapping[str, Any], Column], Column]] = {
    ("string", "uuid"): lambda _, json: _uuid(json),
    ("fixed", "uuid"): _uuid_bytes,
    ("int", "date"): lambda _, json: _date(json),
    ("int", "time-millis"): lambda _, json: _time(json, "millis", "int"),
    ("long", "time-micros"): lambda _, json: _time(json, "micros", "long"),
    ("long", "timestamp-millis"): lambda _, json: _timestamp(json, "millis"),
    ("long", "timestamp-micros"): lambda _, json: _timestamp(json, "micros"),
    ("long", "local-timestamp-millis"): lambda _, json: _local_timestamp(json, "millis"),
    ("long", "local-timestamp-micros"): lambda _, json: _local_timestamp(json, "micros"),
    ("bytes", "decimal"): _decimal,
    ("fixed", "decimal"): _decimal,
}
_TYPES: Mapping[str, Callable[[Mapping[str, Any], Column], Column]] = {
    "string": lambda _, json: _string(json),
    "enum": _enum,
    "int": lambda _, json: _int(json),
    "long": lambda _, json: _long(json),
    "float": lambda _, json: _floating_point(json, "float"),
    "double": lambda _, json: _floating_point(json, "double"),
    "boolean": lambda _, json: _boolean(json),
    "bytes": lambda _, json: _bytes(json),
    "fixed": _fixed,
}
