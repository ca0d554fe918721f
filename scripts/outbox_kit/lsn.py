"""WAL positions (LSN) in both notations: a number of bytes (Debezium), text such as 16/B374D848 (PostgreSQL)."""

from __future__ import annotations

UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def text(lsn: int) -> str:
    """Return PostgreSQL's notation: 97500059720 is 16/B374D848."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def parse(text: str) -> int:
    """Return the number of an LSN in PostgreSQL's notation: 16/B374D848 is 97500059720."""
    high, low = text.split("/")
    return (int(high, 16) << 32) + int(low, 16)


def describe(lsn: int | None) -> str:
    """Return both notations for messages."""
    return "none" if lsn is None else f"{text(lsn)} ({lsn})"


def as_json(lsn: int | None) -> dict[str, object] | None:
    """Return both notations for JSON output."""
    return None if lsn is None else {"number": lsn, "text": text(lsn)}


def size(count: int) -> str:
    """Format an amount of WAL, such as 17.2 MiB."""
    for unit, name in UNITS:
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count} bytes"
