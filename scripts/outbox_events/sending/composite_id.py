"""Build the aggregate_id of an aggregate that several values identify."""

from __future__ import annotations

from datetime import date, datetime
from enum import Enum
from uuid import UUID

from outbox_events.sending.event import InvalidEventError


def composite_id(*values: str | int | UUID | date) -> str:
    """Join the values with `/`, after replacing `~` with `~0` and `/` with `~1` in each value (as in RFC 6901).

    Different values never have the same text. `outbox backfill` writes the same text if `backfill.key` lists several
    columns. Raises InvalidEventError for fewer than two values, and for values whose text differs in PostgreSQL.
    """
    if len(values) < 2:  # noqa: PLR2004 - the text of a single value is not escaped
        raise InvalidEventError(f"a composite id has {len(values)} values", "pass at least two values")
    for value in values:
        if isinstance(value, (bool, datetime)) or not isinstance(value, (str, int, UUID, date)):
            name = type(value).__name__
            raise InvalidEventError(
                f"a value of a composite id is {name}", "pass str, int, UUID or date: the text of COLUMN::text"
            )
    texts = [str(value.value if isinstance(value, Enum) else value) for value in values]
    return "/".join(text.replace("~", "~0").replace("/", "~1") for text in texts)
