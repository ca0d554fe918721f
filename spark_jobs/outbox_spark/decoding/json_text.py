"""JSON in bytes to Spark's variant, strictly: what is not exactly one JSON document is NULL."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

JSON_OPTIONS = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Of to_json, for exact text: it cuts timestamps to milliseconds and leaves out nulls unless told otherwise."""

_END = "outbox__end"
# Half a surrogate pair as an escape, which the parser would turn into a question mark. An escaped backslash before
# the u makes it text.
_HALF = (
    r"(?<!\\)(?:\\\\)*(?:\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    r"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2})"
)


def parsed(raw: Column) -> Column:
    """A variant; SQL NULL where the bytes are no JSON document in UTF-8, or repeat a member of an object.

    JSON null is a variant too, and not SQL NULL.
    """
    text = raw.cast("string")
    # The parser stops after the first value, whatever follows: the end that is put behind it must still be found.
    found = F.try_parse_json(F.concat(F.lit('{"v":'), text, F.lit(f',"{_END}":0}}')))
    whole = F.try_variant_get(found, f"$.{_END}", "int").isNotNull()
    good = F.is_valid_utf8(text) & ~F.rlike(text, F.lit(_HALF)) & whole
    return F.when(good, F.try_variant_get(found, "$.v", "variant"))


def payload_of(envelope: Column) -> Column:
    """`payload` of {"schema": ..., "payload": ...}; SQL NULL where there is no such envelope."""
    has_schema = F.try_variant_get(envelope, "$.schema", "variant").isNotNull()
    return F.when(has_schema, F.try_variant_get(envelope, "$.payload", "variant"))


def state_of(found: Column) -> Column:
    """What a value means: JSON inside of a JSON text counts as that JSON.

    EventRouter that does not expand payloads, with JsonConverter behind it, writes a jsonb payload as a text.
    """
    inner = parsed(F.try_variant_get(found, "$", "string"))
    return F.when(F.schema_of_variant(found) == "STRING", inner).otherwise(found)


def kind_is(found: Column, kind: str) -> Column:
    """Whether a variant is an OBJECT, ARRAY, STRING, BIGINT, DECIMAL, DOUBLE, BOOLEAN or (JSON null) VOID."""
    return F.startswith(F.schema_of_variant(found), F.lit(kind))
