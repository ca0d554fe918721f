"""Convert WAL positions (LSNs) between Debezium's integers and PostgreSQL's notation, such as 16/B374D848."""

from __future__ import annotations


def format_lsn(lsn: int) -> str:
    """Return an LSN in PostgreSQL's notation. For example, 97500059720 becomes 16/B374D848."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def parse(text: str) -> int:
    """Parse an LSN in PostgreSQL's notation. For example, 16/B374D848 becomes 97500059720."""
    high, low = text.split("/")
    return (int(high, 16) << 32) + int(low, 16)


def describe(lsn: int | None) -> str:
    """Return an LSN in both notations for messages, or `none` if there is no LSN."""
    return "none" if lsn is None else f"{format_lsn(lsn)} ({lsn})"


def as_json(lsn: int | None) -> dict[str, object] | None:
    """Return an LSN in both notations for JSON output, or None if there is no LSN."""
    return None if lsn is None else {"number": lsn, "text": format_lsn(lsn)}
