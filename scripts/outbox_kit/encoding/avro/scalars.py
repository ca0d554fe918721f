"""Encode JSON null, booleans and strings as Avro null, boolean, string, enum, uuid, bytes, dates and times."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Sequence

from outbox_kit.encoding import iso_times
from outbox_kit.encoding.avro.node import MAX_LONG, MIN_LONG, Node, long_bytes, mismatch, prefixed
from outbox_kit.encoding.avro.numbers import NUMBERS, OUT_OF_RANGE, exact_long

OTHER_FORMAT = "a string in a different format"
UUID_FORM = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
HEX_FORM = re.compile(r"\\x((?:[0-9a-fA-F]{2})*)")
BASE64_FORM = re.compile(r"[A-Za-z0-9+/]*={0,2}")
INT_LIMIT = 2**31
STRINGS = frozenset({str})
RESOLUTIONS = {"millis": (3, 1_000_000), "micros": (6, 1_000), "nanos": (9, 1)}
"""Number of fraction digits, and nanoseconds per tick, for each resolution."""


class NullNode(Node):
    """Writes null."""

    def __init__(self) -> None:
        super().__init__("null", frozenset({type(None)}))

    def write(self, value: object) -> bytes:
        del value
        return b""


class BooleanNode(Node):
    """Writes booleans."""

    def __init__(self) -> None:
        super().__init__("boolean", frozenset({bool}))

    def write(self, value: object) -> bytes:
        return b"\x01" if value else b"\x00"


class StringNode(Node):
    """Writes text."""

    def __init__(self) -> None:
        super().__init__("string", STRINGS)

    def write(self, value: object) -> bytes:
        try:
            return prefixed(str(value).encode())
        except UnicodeEncodeError:
            raise mismatch(self.expected, "a string with an unpaired surrogate") from None


class EnumNode(Node):
    """Writes symbols. The default of the enum is ignored, because only readers use it."""

    def __init__(self, name: str, symbols: Sequence[str]) -> None:
        super().__init__(f"enum {name} [{', '.join(symbols)}]", STRINGS)
        self._codes = {symbol: long_bytes(position) for position, symbol in enumerate(symbols)}

    def write(self, value: object) -> bytes:
        code = self._codes.get(str(value))
        if code is None:
            raise mismatch(self.expected, "a string that is not a symbol")
        return code


class UuidNode(Node):
    """Writes UUIDs of the form 8-4-4-4-12 as string or fixed(16)."""

    def __init__(self, *, is_fixed: bool) -> None:
        super().__init__("uuid", STRINGS)
        self._is_fixed = is_fixed

    def write(self, value: object) -> bytes:
        text = str(value)
        if not UUID_FORM.fullmatch(text):
            raise mismatch(self.expected, OTHER_FORMAT)
        return bytes.fromhex(text.replace("-", "")) if self._is_fixed else prefixed(text.encode())


class BytesNode(Node):
    """Writes bytes and fixed. The input is base64, or hexadecimal digits after `\\x`, as in bytea output."""

    def __init__(self, size: int | None) -> None:
        name = "bytes" if size is None else f"fixed({size})"
        super().__init__(f"{name} in base64 or \\x hexadecimal", STRINGS)
        self._size = size

    def write(self, value: object) -> bytes:
        data = self._decoded(str(value))
        if self._size is None:
            return prefixed(data)
        if len(data) != self._size:
            raise mismatch(self.expected, f"{len(data)} bytes")
        return data

    def _decoded(self, text: str) -> bytes:
        match = HEX_FORM.fullmatch(text)
        if match:
            return bytes.fromhex(match[1])
        # Java's decoder accepts base64 without padding.
        if BASE64_FORM.fullmatch(text) and (not text.endswith("=") or len(text) % 4 == 0):
            try:
                return base64.b64decode(text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4), validate=True)
            except binascii.Error:
                pass  # the length is one more than a multiple of four
        raise mismatch(self.expected, OTHER_FORMAT)


class DateNode(Node):
    """Writes dates from ISO 8601 text or days since 1970-01-01."""

    def __init__(self) -> None:
        super().__init__("date (YYYY-MM-DD or days since 1970-01-01)", NUMBERS | STRINGS)

    def write(self, value: object) -> bytes:
        if type(value) is str:
            days = iso_times.days(value)
            if days is None:
                raise mismatch(self.expected, OTHER_FORMAT)
            return long_bytes(days)
        days = exact_long(value, self.expected)
        if not -INT_LIMIT <= days < INT_LIMIT:
            raise mismatch(self.expected, OUT_OF_RANGE)
        return long_bytes(days)


class TimeNode(Node):
    """Writes times of day from ISO 8601 text or ticks since midnight."""

    def __init__(self, kind: str) -> None:
        digits, self._nanos = RESOLUTIONS[kind.rpartition("-")[2]]
        super().__init__(f"{kind} (HH:MM:SS with at most {digits} fraction digits, or an integer)", NUMBERS | STRINGS)

    def write(self, value: object) -> bytes:
        if type(value) is str:
            nanos = iso_times.nanos_of_day(value)
            if nanos is None or nanos % self._nanos:
                raise mismatch(self.expected, OTHER_FORMAT)
            return long_bytes(nanos // self._nanos)
        ticks = exact_long(value, self.expected)
        if not 0 <= ticks < iso_times.SECONDS_PER_DAY * iso_times.NANOS // self._nanos:
            raise mismatch(self.expected, OUT_OF_RANGE)
        return long_bytes(ticks)


class TimestampNode(Node):
    """Writes timestamps from ISO 8601 text or ticks. The text has a UTC offset unless the timestamp is local."""

    def __init__(self, kind: str) -> None:
        self._digits, self._nanos = RESOLUTIONS[kind.rpartition("-")[2]]
        is_local = kind.startswith("local-")
        offset = "without" if is_local else "with"
        form = f"{kind} (ISO-8601 {offset} UTC offset and at most {self._digits} fraction digits, or an integer)"
        super().__init__(form, NUMBERS | STRINGS)
        self._parse: Callable[[str], int | None] = iso_times.local_nanos if is_local else iso_times.utc_nanos

    def write(self, value: object) -> bytes:
        return long_bytes(self._ticks(value) if type(value) is str else exact_long(value, self.expected))

    def _ticks(self, text: str) -> int:
        nanos = self._parse(text)
        if nanos is None:
            raise mismatch(self.expected, OTHER_FORMAT)
        if nanos % self._nanos:
            raise mismatch(self.expected, f"more than {self._digits} fraction digits")
        ticks = nanos // self._nanos
        if not MIN_LONG <= ticks <= MAX_LONG:
            raise mismatch(self.expected, "a time out of range")
        return ticks
