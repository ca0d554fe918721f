"""WAL positions (LSN) in their two notations: Debezium's number, PostgreSQL's text."""

from __future__ import annotations

UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def text(lsn: int) -> str:
    """As PostgreSQL writes it: 97500059720 is 16/B374D848."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def both(lsn: int | None) -> str:
    """In both notations, for a person."""
    return "none" if lsn is None else f"{text(lsn)} ({lsn})"


def pair(lsn: int | None) -> dict[str, object] | None:
    """In both notations, for a program."""
    return None if lsn is None else {"number": lsn, "text": text(lsn)}


def size(count: int) -> str:
    """An amount of WAL in words: 17.2 MiB."""
    for unit, name in UNITS:
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count} bytes"
