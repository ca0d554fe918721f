"""From a JSON scalar to a value of an Avro type: NULL where it is none, whatever the reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from outbox_common.avro_schema import Node, kind_of
from outbox_spark.decoding.json_text import kind_is

Convert = Callable[[Column], Column]

# Doubles below it are whole numbers exactly.
_EXACT = 2**53
_WHOLE = r"^-?[0-9]+$"
_DECIMAL = r"^-?[0-9]+(\.[0-9]+)?$"
_UUID = "^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$"
_DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_CLOCK = r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
_OFFSET = r"(Z|[+-][0-9]{2}(:?[0-9]{2})?)"
_DAY_SECONDS = 86_400
# By unit: fraction digits, and the function that makes a timestamp of a number.
_UNITS: Mapping[str, tuple[int, Convert]] = {"millis": (3, F.timestamp_millis), "micros": (6, F.timestamp_micros)}


def converter(node: Node) -> Convert:
    """For an Avro type that is no record, array, map or union; a logical type that is not known is ignored."""
    kind, definition = kind_of(node), node if isinstance(node, dict) else {}
    logical = _LOGICAL.get((kind, str(definition.get("logicalType", ""))))
    made = logical or _PLAIN.get(kind)
    return made(definition) if made is not None else lambda _: F.lit(None)


def _string(found: Column) -> Column:
    return F.when(kind_is(found, "STRING"), F.try_variant_get(found, "$", "string"))


def _boolean(found: Column) -> Column:
    return F.when(kind_is(found, "BOOLEAN"), F.try_variant_get(found, "$", "boolean"))


def _whole(found: Column) -> Column:
    """A whole number as long: 1, 1.0 and 1e3 are some."""
    text = F.try_variant_get(found, "$", "string")
    number = F.try_variant_get(found, "$", "double")
    exact = (number == F.floor(number)) & (F.abs(number) < F.lit(_EXACT))
    return (
        F.when(kind_is(found, "BIGINT"), F.try_variant_get(found, "$", "long"))
        .when(kind_is(found, "DECIMAL") & F.rlike(text, F.lit(_WHOLE)), text.try_cast("long"))
        .when(kind_is(found, "DOUBLE") & exact, number.try_cast("long"))
    )


def _int(found: Column) -> Column:
    return _whole(found).try_cast("int")


def _real(kind: str) -> Convert:
    def convert(found: Column) -> Column:
        is_number = kind_is(found, "BIGINT") | kind_is(found, "D")  # DECIMAL, DOUBLE
        number = F.try_variant_get(found, "$", "double").cast(kind)
        return F.when(is_number & (F.abs(number) < F.lit(float("inf"))), number)

    return convert


def _decimal(node: Mapping[str, Any]) -> Convert:
    """A number, or a text that holds one. More digits than there is room for make it none."""
    precision, scale = int(node["precision"]), int(node.get("scale", 0))

    def convert(found: Column) -> Column:
        # In exponent form a number has passed through a double, and only whole ones are still what was written.
        text = (
            F.when(kind_is(found, "DOUBLE"), _whole(found).cast("string"))
            .when(kind_is(found, "STRING") | kind_is(found, "BIGINT") | kind_is(found, "DECIMAL"),
                  F.try_variant_get(found, "$", "string"))
        )  # fmt: skip
        digits = F.length(F.rtrim(F.regexp_extract(text, r"\.([0-9]+)$", 1), F.lit("0")))
        fits = F.rlike(text, F.lit(_DECIMAL)) & (digits <= F.lit(scale))
        return F.when(fits, text.try_cast(f"decimal({precision},{scale})"))

    return convert


def _bytes(found: Column) -> Column:
    r"""`\x` and hexadecimal digits, as PostgreSQL writes bytea, or base64."""
    text = _string(found)
    is_hex = F.rlike(text, F.lit(r"^\\x([0-9a-fA-F]{2})*$"))
    return F.when(is_hex, F.try_to_binary(F.substring(text, 3, 2**31 - 1), F.lit("hex"))).otherwise(
        F.try_to_binary(text, F.lit("base64"))
    )


def _fixed(node: Mapping[str, Any]) -> Convert:
    def convert(found: Column) -> Column:
        value = _bytes(found)
        return F.when(F.octet_length(value) == F.lit(int(node["size"])), value)

    return convert


def _enum(node: Mapping[str, Any]) -> Convert:
    def convert(found: Column) -> Column:
        text = _string(found)
        return F.when(text.isin(*node["symbols"]), text)

    return convert


def _uuid(found: Column) -> Column:
    text = _string(found)
    return F.when(F.rlike(text, F.lit(_UUID)), text)


def _uuid_bytes(node: Mapping[str, Any]) -> Convert:
    if node["size"] != 16:  # noqa: PLR2004 - the size of a uuid; of another size it is a fixed like any other
        return _fixed(node)
    return lambda found: F.unhex(F.replace(_uuid(found), F.lit("-"), F.lit("")))


def _date(found: Column) -> Column:
    """ISO-8601, or days since 1970."""
    text = _string(found)
    written = F.when(F.rlike(text, F.lit(f"^{_DATE}$")), text.try_cast("date"))
    return F.coalesce(written, F.date_from_unix_date(_int(found)))


def _time(unit: str, kind: str) -> Convert:
    """`HH:MM:SS` and a fraction, or the number of units since midnight; as that number."""
    digits = _UNITS[unit][0]

    def convert(found: Column) -> Column:
        text = _string(found)
        seconds = (
            F.substring(text, 1, 2).try_cast("int") * 3600
            + F.substring(text, 4, 2).try_cast("int") * 60
            + F.substring(text, 7, 2).try_cast("int")
        )
        fraction = F.rpad(F.substring(text, 10, digits), digits, "0").try_cast("int")
        written = seconds.cast("long") * 10**digits + fraction
        number = _whole(found)
        in_day = number.between(0, _DAY_SECONDS * 10**digits - 1)
        good = F.rlike(text, F.lit(f"^{_CLOCK}{_fraction(digits)}$"))
        return F.when(good, written).when(in_day, number).cast(kind)

    return convert


def _timestamp(unit: str) -> Convert:
    """ISO-8601 with offset, or the number of units since 1970."""
    digits, from_number = _UNITS[unit]

    def convert(found: Column) -> Column:
        text = _string(found)
        good = F.rlike(text, F.lit(f"^{_DATE}[T ]{_CLOCK}{_fraction(digits)}{_OFFSET}$"))
        # Spark knows offsets of hours and minutes with a colon only.
        colon = F.regexp_replace(text, "([+-][0-9]{2})([0-9]{2})$", "$1:$2")
        offset = F.regexp_replace(colon, "([T ].*[+-][0-9]{2})$", "$1:00")
        return F.coalesce(F.when(good, offset.try_cast("timestamp")), _since_1970(found, digits, from_number))

    return convert


def _local_timestamp(unit: str) -> Convert:
    """ISO-8601 without offset, or the number of units since 1970."""
    digits, from_number = _UNITS[unit]

    def convert(found: Column) -> Column:
        text = _string(found)
        good = F.rlike(text, F.lit(f"^{_DATE}[T ]{_CLOCK}{_fraction(digits)}$"))
        number = _since_1970(found, digits, from_number).cast("timestamp_ntz")  # the session's zone is UTC
        return F.coalesce(F.when(good, text.try_cast("timestamp_ntz")), number)

    return convert


def _since_1970(found: Column, digits: int, from_number: Convert) -> Column:
    number = _whole(found)
    # What does not fit Spark's microseconds raises instead of being NULL.
    most = (2**63 - 1) // 10 ** (6 - digits)
    return from_number(F.when(number.between(-most, most), number))


def _fraction(digits: int) -> str:
    """Digits beyond the unit are refused, but for zeros."""
    return rf"(\.[0-9]{{1,{digits}}}0*)?"


_LOGICAL: Mapping[tuple[str, str], Callable[[Mapping[str, Any]], Convert]] = {
    ("string", "uuid"): lambda _: _uuid,
    ("fixed", "uuid"): _uuid_bytes,
    ("int", "date"): lambda _: _date,
    ("int", "time-millis"): lambda _: _time("millis", "int"),
    ("long", "time-micros"): lambda _: _time("micros", "long"),
    ("long", "timestamp-millis"): lambda _: _timestamp("millis"),
    ("long", "timestamp-micros"): lambda _: _timestamp("micros"),
    ("long", "local-timestamp-millis"): lambda _: _local_timestamp("millis"),
    ("long", "local-timestamp-micros"): lambda _: _local_timestamp("micros"),
    ("bytes", "decimal"): _decimal,
    ("fixed", "decimal"): _decimal,
}
_PLAIN: Mapping[str, Callable[[Mapping[str, Any]], Convert]] = {
    "string": lambda _: _string,
    "enum": _enum,
    "int": lambda _: _int,
    "long": lambda _: _whole,
    "float": lambda _: _real("float"),
    "double": lambda _: _real("double"),
    "boolean": lambda _: _boolean,
    "bytes": lambda _: _bytes,
    "fixed": _fixed,
}
