"""Convert JSON bytes to Spark's variant. The result is NULL unless the bytes are exactly one JSON document."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

JSON_OPTIONS = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Options that make to_json lossless. By default, it truncates timestamps to milliseconds and omits nulls."""

_END_MEMBER = "outbox__end"
# Matches the escape of an unpaired surrogate, which the parser would replace with a question mark. A `u` after an
# escaped backslash is not an escape.
_UNPAIRED_SURROGATE = (
    r"(?<!\\)(?:\\\\)*(?:\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    r"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2})"
)


def parse_json(raw: Column) -> Column:
    """Return a variant; SQL NULL if the bytes are not a JSON document in UTF-8 or an object repeats a member.

    JSON null is a variant, not SQL NULL.
    """
    text = raw.cast("string")
    # The parser ignores text after the first value, so it must also parse an end marker, which is appended.
    wrapped = F.try_parse_json(F.concat(F.lit('{"v":'), text, F.lit(f',"{_END_MEMBER}":0}}')))
    is_complete = F.try_variant_get(wrapped, f"$.{_END_MEMBER}", "int").isNotNull()
    is_valid = F.is_valid_utf8(text) & ~F.rlike(text, F.lit(_UNPAIRED_SURROGATE)) & is_complete
    return F.when(is_valid, F.try_variant_get(wrapped, "$.v", "variant"))


def payload_of(envelope: Column) -> Column:
    """Return `payload` of {"schema": ..., "payload": ...}; SQL NULL if the document does not have this form."""
    has_schema = F.try_variant_get(envelope, "$.schema", "variant").isNotNull()
    return F.when(has_schema, F.try_variant_get(envelope, "$.payload", "variant"))


def unwrap_string(document: Column) -> Column:
    """Return the document that a JSON string contains; return any other document unchanged.

    Without payload expansion, EventRouter and JsonConverter write a jsonb payload as a JSON string.
    """
    inner = parse_json(F.try_variant_get(document, "$", "string"))
    return F.when(F.schema_of_variant(document) == "STRING", inner).otherwise(document)


def has_kind(variant: Column, kind: str) -> Column:
    """Return whether a variant's type name begins with `kind`, such as OBJECT, STRING, BIGINT or VOID (JSON null)."""
    return F.startswith(F.schema_of_variant(variant), F.lit(kind))
