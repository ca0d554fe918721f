"""Names of record headers that a pipeline file may give, and those that are taken."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping

from outbox_kit.record_headers import CONTRACT_HEADERS

DEAD_LETTER = ("dead_letter_reason", "dead_letter_message")

CLOUDEVENTS = ("ce_specversion", "ce_id", "ce_source", "ce_type", "ce_time", "ce_subject", "content-type")
"""Those that `source.cloudevents_source` adds: CloudEvents' binary mode of Kafka."""

# In the connector config it is a part of COLUMN:header:NAME, an item of a list.
NAME = re.compile(r"[^\s:,$\"\\\x00-\x1f\x7f-\x9f]+")
# RFC 3986: characters of a URI reference, one fragment, `[` and `]` around an IP address only.
ADDRESS = re.compile(r"(?<=//)\[[0-9A-Fa-f:.]+\]")
CHARACTER = r"(?:[A-Za-z0-9\-._~!$&'()*+,;=@/:?]|%[0-9A-Fa-f]{2})"
REFERENCE = re.compile(rf"{CHARACTER}*(?:#{CHARACTER}*)?")
SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*")


def refuse_names(columns: Mapping[str, str]) -> None:
    """Header names by column: each once, none of the contract's. Raises ValueError."""
    _refuse_taken(columns, CONTRACT_HEADERS, "every record has a header of that name")
    _refuse_taken(columns, DEAD_LETTER, "dead letters have a header of that name")
    counts = Counter(columns.values())
    for column, name in columns.items():
        if NAME.fullmatch(name) is None:
            banned = "blank, colon, comma, $, quote, backslash or control character"
            msg = f"{name!r}, the header of column {column}, must have no {banned}"
            raise ValueError(msg)
        if counts[name] > 1:
            named = ", ".join(each for each, other in columns.items() if other == name)
            msg = f"columns {named} all become the header {name!r}; give each a name of its own"
            raise ValueError(msg)


def refuse_cloudevents_names(columns: Mapping[str, str]) -> None:
    """The names that CloudEvents takes. Raises ValueError."""
    _refuse_taken(columns, CLOUDEVENTS, "cloudevents_source sets it")


def _refuse_taken(columns: Mapping[str, str], taken: Collection[str], why: str) -> None:
    for column, name in columns.items():
        if name in taken:
            msg = f"{name!r}, the header of column {column}, is taken: {why}; choose another name"
            raise ValueError(msg)


def refuse_source(text: str) -> None:
    """CloudEvents: `source` is a URI reference that is not empty. Raises ValueError."""
    first = re.split(r"[/?#]", text, maxsplit=1)[0]
    scheme, colon, rest = first.partition(":")
    legal = text and REFERENCE.fullmatch(ADDRESS.sub("", text))
    if not legal or (colon and SCHEME.fullmatch(scheme) is None) or (colon and first == text and not rest):
        msg = "must be a URI reference (RFC 3986) such as /library, urn:shop:library or https://shop.example/library"
        raise ValueError(msg)
