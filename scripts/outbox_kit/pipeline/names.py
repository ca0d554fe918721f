"""Define the base class of the models and the types of names, and validate header names and URI references."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, SecretStr, StringConstraints

from outbox_events.contract.dead_letter_headers import CONNECTOR_HEADERS
from outbox_events.contract.headers import CONTRACT_HEADERS

Identifier = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=63)]
QualifiedTable = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_]\w{0,62}\.[A-Za-z_]\w{0,62}$")]
TABLE_SYNTAX = "schema.table without quotes; names are case-sensitive"
"""Description of QualifiedTable. All SQL statements quote the schema name and the table name."""
# Debezium passes the name to pgoutput without quotes, and PostgreSQL converts it to lower case.
PublicationName = Annotated[str, StringConstraints(pattern=r"^[a-z_][a-z0-9_]*$", max_length=63)]
PrintableName = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f-\x9f]+$")]
# Debezium reads the role's privileges with a query that contains the name, unescaped, in a string literal.
ConnectorRole = Annotated[str, StringConstraints(pattern=r"^[^'\x00-\x1f\x7f-\x9f]+$")]
# The JDBC driver decodes `%` and `+` in its URL, and `?` ends the database name.
DatabaseName = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f-\x9f%+?]+$")]
HostName = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f-\x9f?]+$")]
# Characters that Kafka permits in topic names. Also used for names of pipelines, connectors and environments.
ResourceName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]+$", max_length=100)]
# PostgreSQL: "Slot names may only contain lower case letters, numbers, and the underscore character".
SlotName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]+$", max_length=63)]
# Item of a comma-separated list in the connector config. The list does not preserve white space around items.
EventType = Annotated[str, StringConstraints(pattern=r"^[^\s,]([^,]*[^\s,])?$", max_length=255)]

# Header name: NAME in COLUMN:header:NAME, which is an item of a list in the connector config.
HEADER_NAME_PATTERN = re.compile(r"[^\s:,$\"\\\x00-\x1f\x7f-\x9f]+")
# RFC 3986: characters of a URI reference; `[` and `]` are valid only around an IP address.
IP_LITERAL = re.compile(r"(?<=//)\[[0-9A-Fa-f:.]+\]")
URI_CHARACTER = r"(?:[A-Za-z0-9\-._~!$&'()*+,;=@/:?]|%[0-9A-Fa-f]{2})"
URI_REFERENCE = re.compile(rf"{URI_CHARACTER}*(?:#{URI_CHARACTER}*)?")
URI_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*")


class Model(BaseModel):
    """Base of all models. Unknown keys are errors, and instances are immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def plain_values(self) -> dict[str, Any]:
        """Return a mapping from each key to its value, with secrets as plain text and paths as text."""
        return {key: _plain(value) for key, value in self.model_dump(by_alias=True).items()}


def _plain(value: Any) -> Any:  # noqa: ANN401 - any value of a model
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return str(value) if isinstance(value, Path) else value


def _validate_header_names(columns: dict[str, str]) -> dict[str, str]:
    """Check that the header names of columns are valid, unique and not reserved. Raises ValueError."""
    reject_reserved(columns, CONTRACT_HEADERS, "every record has this header")
    reject_reserved(columns, CONNECTOR_HEADERS, "dead letters have this header")
    counts = Counter(columns.values())
    for column, name in columns.items():
        if HEADER_NAME_PATTERN.fullmatch(name) is None:
            forbidden = "white space, a colon, a comma, $, a quote, a backslash or a control character"
            raise ValueError(f"{name!r}, the header of column {column}, must not contain {forbidden}")
        if counts[name] > 1:
            duplicates = ", ".join(key for key, value in columns.items() if value == name)
            raise ValueError(f"columns {duplicates} have the same header {name!r}")
    return columns


def reject_reserved(columns: Mapping[str, str], reserved: Collection[str], reason: str) -> None:
    for column, name in columns.items():
        if name in reserved:
            raise ValueError(f"{name!r}, the header of column {column}, is reserved: {reason}; choose another name")


def _validate_uri(text: str) -> str:
    """Check that the text is a non-empty URI reference, as CloudEvents 1.0.2 requires. Raises ValueError."""
    segment = re.split(r"[/?#]", text, maxsplit=1)[0]
    scheme, colon, path = segment.partition(":")
    is_valid = bool(text and URI_REFERENCE.fullmatch(IP_LITERAL.sub("", text)))
    if not is_valid or (colon and URI_SCHEME.fullmatch(scheme) is None) or (colon and segment == text and not path):
        msg = "must be a URI reference (RFC 3986) such as /library, urn:shop:library or https://shop.example/library"
        raise ValueError(msg)
    return text


HeaderNames = Annotated[dict[Identifier, str], AfterValidator(_validate_header_names)]
UriReference = Annotated[str, AfterValidator(_validate_uri)]
