"""Encode JSON numbers, and decimals in JSON strings, as Avro. Only floats and doubles are rounded."""

from __future__ import annotations

import math
import re
import struct
from decimal import Decimal
from fractions import Fraction

from outbox_kit.encoding.avro.node import MAX_LONG, MIN_LONG, Node, long_bytes, mismatch, prefixed
from outbox_kit.encoding.json_values import MAX_DIGITS, FloatText, IntText

OUT_OF_RANGE = "a number out of range"
NUMBERS = frozenset({IntText, FloatText})
PLAIN_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE](?P<exponent>[+-]?[0-9]+))?")
FLOAT32 = struct.Struct("<f")
FLOAT32_BITS = struct.Struct("<I")
FLOAT32_LIMIT = 2.0**128 - 2.0**103
"""Lowest number that is rounded to infinity as a float."""
FLOAT64 = struct.Struct("<d")
MAX_LONG_DIGITS = 19
MAX_EXPONENT = 2**31 - 1


class MalformedNumberError(Exception):
    """The exponent of a JSON number exceeds 32 bits. The connector rejects the payload, whatever its schema is."""


def exact_long(value: object, expected: str) -> int:
    """Return a number as a long. `1.0` and `1e3` are also accepted as integers. Raises PayloadError."""
    if isinstance(value, IntText):
        number = int(value)
        if not MIN_LONG <= number <= MAX_LONG:
            raise mismatch(expected, OUT_OF_RANGE)
        return number
    decimal = read_decimal(value, expected)
    # The number is converted only if it is small, because a high exponent would create a huge integer.
    if decimal.is_zero():
        return 0
    if decimal.adjusted() < MAX_LONG_DIGITS and decimal == decimal.to_integral_value():
        number = int(decimal)
        if MIN_LONG <= number <= MAX_LONG:
            return number
    raise mismatch(expected, "a number that is out of range or not an integer")


class LongNode(Node):
    """Writes int and long."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind, NUMBERS)
        self._limit = 2**31 if kind == "int" else 2**63

    def write(self, value: object) -> bytes:
        number = exact_long(value, self.expected)
        if not -self._limit <= number < self._limit:
            raise mismatch(self.expected, OUT_OF_RANGE)
        return long_bytes(number)


class DoubleNode(Node):
    """Writes the nearest double. The integer -0 becomes 0.0."""

    def __init__(self) -> None:
        super().__init__("double", NUMBERS)

    def write(self, value: object) -> bytes:
        number = nearest_double(value)
        if not math.isfinite(number):
            raise mismatch(self.expected, OUT_OF_RANGE)
        return FLOAT64.pack(number)


class FloatNode(Node):
    """Writes the nearest float. The integer -0 becomes 0.0."""

    def __init__(self) -> None:
        super().__init__("float", NUMBERS)

    def write(self, value: object) -> bytes:
        number = nearest_double(value)
        if abs(number) == FLOAT32_LIMIT and abs(Fraction(Decimal(str(value)))) < FLOAT32_LIMIT:
            number = math.nextafter(number, 0)
        try:
            encoded = FLOAT32.pack(number)
        except OverflowError:
            encoded = b""
        if not encoded or not math.isfinite(number):
            raise mismatch(self.expected, OUT_OF_RANGE)
        return _rounded_once(encoded, number, str(value))


def nearest_double(value: object) -> float:
    number = float(str(value))
    return 0.0 if number == 0 and isinstance(value, IntText) else number


def _rounded_once(encoded: bytes, double: float, text: str) -> bytes:
    """Return the float nearest to the text. The double can be halfway between two floats although the text is not."""
    single = FLOAT32.unpack(encoded)[0]
    bits = FLOAT32_BITS.unpack(encoded)[0]
    if single == double:
        return encoded
    neighbor_bits = bits + (1 if abs(double) > abs(single) else -1)
    neighbor = FLOAT32_BITS.pack(neighbor_bits)
    if FLOAT32.unpack(neighbor)[0] + single != 2 * double:
        return encoded
    exact = abs(Fraction(Decimal(text)))
    tie = Fraction(abs(double))
    if exact == tie:
        return encoded
    return max(encoded, neighbor, key=_magnitude) if exact > tie else min(encoded, neighbor, key=_magnitude)


def _magnitude(encoded: bytes) -> float:
    return abs(float(FLOAT32.unpack(encoded)[0]))


class DecimalNode(Node):
    """Writes decimals as bytes or fixed. Numbers that exceed the scale or the precision are rejected."""

    def __init__(self, precision: int, scale: int, size: int | None) -> None:
        super().__init__(f"decimal({precision},{scale})", NUMBERS | {str})
        self._precision, self._scale, self._size = precision, scale, size

    def write(self, value: object) -> bytes:
        unscaled = self._unscaled(read_decimal(value, self.expected))
        if self._size is not None:
            return unscaled.to_bytes(self._size, "big", signed=True)
        return prefixed(signed_bytes(unscaled))

    def _unscaled(self, value: Decimal) -> int:
        sign, digits, exponent = value.as_tuple()
        text = "".join(map(str, digits)).lstrip("0")
        stripped = text.rstrip("0")
        scale = -int(exponent) - (len(text) - len(stripped))
        if not stripped:
            return 0
        if scale > self._scale:
            raise mismatch(self.expected, f"a number with more than {self._scale} fraction digits")
        if len(stripped) - scale + self._scale > self._precision:
            digit_limit = self._precision - self._scale
            raise mismatch(self.expected, f"a number with more than {digit_limit} integer digits")
        number: int = int(stripped) * 10 ** (self._scale - scale)
        return -number if sign else number


class BigDecimalNode(Node):
    """Writes big-decimals as one bytes value, which contains the unscaled value and the scale of the number."""

    def __init__(self) -> None:
        super().__init__("big-decimal", NUMBERS | {str})

    def write(self, value: object) -> bytes:
        sign, digits, exponent = read_decimal(value, self.expected).as_tuple()
        number = int("".join(map(str, digits)))
        return prefixed(prefixed(signed_bytes(-number if sign else number)) + long_bytes(-int(exponent)))


def read_decimal(value: object, expected: str) -> Decimal:
    """Return a JSON number, or the number in a string. Raises PayloadError and MalformedNumberError."""
    text = str(value)
    match = PLAIN_DECIMAL.fullmatch(text) if len(text) <= MAX_DIGITS or type(value) in NUMBERS else None
    if match is not None and abs(int(match["exponent"] or 0)) <= MAX_EXPONENT:
        decimal = Decimal(text)
        if abs(int(decimal.as_tuple().exponent)) <= MAX_EXPONENT:
            return decimal
    if isinstance(value, FloatText):
        raise MalformedNumberError
    raise mismatch(expected, f"a string that is not a number of up to {MAX_DIGITS} characters")


def signed_bytes(value: int) -> bytes:
    """Return the shortest two's complement representation."""
    bits = value if value >= 0 else ~value
    return value.to_bytes(bits.bit_length() // 8 + 1, "big", signed=True)
