"""Variants of the receiving benchmark, one line per strategy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.benchmarks.receiving.service import Service, insert, insert_in_session

from outbox_events import BloomFilter, Event, ProcessedEvents, StoredOffsets, Strategy, WithoutDeduplication

SAME = "same_handler"
SAME_SQLALCHEMY = "same_handler_sqlalchemy"


@dataclass(frozen=True)
class Variant:
    """A strategy with a handler. Its rate is compared with that of the variant `baseline` in the same round."""

    name: str
    strategy: Callable[[Service, str], Strategy[Any]]
    handler: Callable[[Event, Any], None] = insert
    baseline: str = SAME
    bound: float | None = None
    """Lower limit of the ratio."""
    writes_rows: bool = True


VARIANTS = (
    Variant(SAME, lambda service, _: WithoutDeduplication(service.connect)),
    Variant("table", lambda service, group: ProcessedEvents(service.connect, group), bound=0.7),
    Variant("offsets", lambda service, group: StoredOffsets(service.connect, group)),
    Variant("bloom", lambda service, group: BloomFilter(service.connect, group), bound=0.7),
    Variant(SAME_SQLALCHEMY, lambda service, _: WithoutDeduplication(service.session), insert_in_session),
    Variant(
        "table_sqlalchemy",
        lambda service, group: ProcessedEvents(service.session, group),
        insert_in_session,
        SAME_SQLALCHEMY,
    ),
)
