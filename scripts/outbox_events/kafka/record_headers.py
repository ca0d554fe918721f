"""Headers of a record that a confluent-kafka consumer has read."""

from __future__ import annotations

from confluent_kafka import Message


def header_pairs(message: Message) -> list[tuple[str, str | bytes | None]]:
    """Return name and value of each header, in their order; a name can occur more than once."""
    headers = message.headers() or []
    return list(headers.items() if isinstance(headers, dict) else headers)


def raw_headers(message: Message) -> tuple[tuple[str, bytes | None], ...]:
    """Return name and value of each header as bytes, in their order."""
    pairs = header_pairs(message)
    return tuple((name, value.encode() if isinstance(value, str) else value) for name, value in pairs)


def text_headers(message: Message) -> dict[str, str]:
    """Return the headers of a record as text. Headers with a null value are omitted."""
    pairs = header_pairs(message)
    return {str(key): value.decode(errors="replace") for key, value in pairs if isinstance(value, bytes)}
