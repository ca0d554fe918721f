"""Records that a service creates."""

from __future__ import annotations

from typing import Any

import pytest

from outbox_events import ConfigurationError, Record


@pytest.mark.parametrize(
    "contents",
    [
        {"key": "text", "value": None},
        {"key": None, "value": {"title": "Emma"}},
        {"key": None, "value": None, "headers": (("event_id", b"1"), ("event_type", None))},
        {"key": None, "value": None, "headers": (("event_type", "book_lent"),)},
    ],
)
def test_contents_that_are_not_bytes_are_refused(contents: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="must be bytes"):
        Record("library.book", **contents)
