"""Create a record's headers from the contract, columns, the row's headers object and the CloudEvents settings."""

from __future__ import annotations

from collections.abc import Mapping

from outbox_events.contract.headers import CLOUDEVENTS_HEADERS, CONTRACT_HEADERS
from outbox_kit.encoding.json_values import WHITE_SPACE, FloatText, IntText, Members, compact, parse
from outbox_kit.encoding.row import InvalidRowError, OutboxRow, PayloadError, quoted_name
from outbox_kit.pipeline import Pipeline

Headers = list[tuple[str, str]]
NO_OBJECT = "expected a JSON object of header names and values"
CONTENT_TYPES = {"text": "text/plain; charset=utf-8", "bytes": "application/octet-stream"}


def reserved_names(pipeline: Pipeline) -> dict[str, str]:
    """Return the header names that the headers object of a row must not contain, with the reason for each name."""
    cloudevents = CLOUDEVENTS_HEADERS if pipeline.source.cloudevents_source is not None else ()
    return {
        **dict.fromkeys(CONTRACT_HEADERS, "a reserved header of outbox-kit (docs/contract.md)"),
        **dict.fromkeys(pipeline.source.header_columns.values(), "set by table.fields.additional.placement"),
        **dict.fromkeys(cloudevents, "a CloudEvents header"),
    }


def contract_headers(row: OutboxRow, sequence: str, columns: Mapping[str, str]) -> Headers:
    """Return the contract's headers, and a header for each column that `columns` maps to a name. Nulls are omitted."""
    values = (row.id, row.event_type, row.aggregate_type, row.event_time, sequence)
    headers = [(name, value) for name, value in zip(CONTRACT_HEADERS, values, strict=True) if value is not None]
    additional = ((header, row.additional.get(column)) for column, header in columns.items())
    return headers + [(header, value) for header, value in additional if value is not None]


def row_headers(text: str | None, reserved: Mapping[str, str]) -> Headers:
    """Return the members of the row's headers object. Strings are unchanged, and other values become compact JSON.

    Raises InvalidRowError.
    """
    if text is None:
        return []
    if not text.strip(WHITE_SPACE):
        raise _invalid(NO_OBJECT)
    try:
        value = parse(text)
    except PayloadError as error:
        has_more = error.problem.startswith("there is text")
        raise _invalid("there is text after the end of the JSON value" if has_more else "not valid JSON") from None
    if value is None:
        return []
    if not isinstance(value, Members):
        raise _invalid(NO_OBJECT)
    headers: dict[str, str] = {}
    for name, item in value:
        _check_name(name, reserved, headers)
        headers[name] = _text(item)
        _require_unicode(name, headers[name])
    return list(headers.items())


def _check_name(name: str, reserved: Mapping[str, str], earlier: Mapping[str, str]) -> None:
    if not name:
        raise _invalid("empty header name")
    if name in reserved:
        raise _invalid(f'"{name}" is {reserved[name]}')
    if name in earlier:
        raise _invalid(f"duplicate header {quoted_name(name)}")


def _text(value: object) -> str:
    is_plain = isinstance(value, str) and not isinstance(value, IntText | FloatText)
    return str(value) if is_plain else compact(value)


def _require_unicode(*texts: str) -> None:
    try:
        for text in texts:
            text.encode()
    except UnicodeEncodeError:
        raise _invalid("a name or a value has an unpaired surrogate") from None


def _invalid(problem: str) -> InvalidRowError:
    return InvalidRowError("headers-invalid", f"headers: {problem}")


def cloudevents_headers(source: str, row: OutboxRow, content_type: str | None) -> Headers:
    """Return the headers of CloudEvents' binary mode. `content_type` is None for a tombstone."""
    values = ("1.0", row.id, source, row.event_type, row.event_time, row.aggregate_id, content_type)
    return [(name, value) for name, value in zip(CLOUDEVENTS_HEADERS, values, strict=True) if value is not None]


def content_type(payload_format: str, *, is_json: bool) -> str:
    """Return the media type of a record value."""
    if payload_format == "text" and is_json:
        return "application/json"
    return CONTENT_TYPES.get(payload_format, "application/avro")


def encoded(headers: Headers) -> tuple[tuple[str, bytes], ...]:
    """Return the headers as bytes."""
    return tuple((name, value.encode()) for name, value in headers)
