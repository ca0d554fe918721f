"""Handlers and ids of events."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from outbox_events import Event, Handlers, InvalidRecordError, payload_id, position_id
from outbox_events.errors import ConfigurationError

EVENT = Event("library.book", 1, 7, b"b-1", b'{"loan": "l-1"}', decode=lambda _: {"loan": "l-1"})
TOMBSTONE = replace(EVENT, raw_value=None)


async def coroutine(event: Event, context: None) -> None:
    del event, context


def generator(event: Event, context: None) -> Iterator[None]:
    del event
    yield context


class Asynchronous:
    async def __call__(self, event: Event, context: None) -> None:
        del event, context


@pytest.mark.parametrize("handler", [coroutine, generator, Asynchronous()])
def test_refuses_functions_whose_body_would_not_run(handler: object) -> None:
    handlers = Handlers[None]()
    for register in (handlers.on("Lent"), handlers.otherwise, handlers.on_duplicate):
        with pytest.raises(ConfigurationError):
            register(handler)  # type: ignore[arg-type]


def test_a_tombstone_has_an_id_if_a_function_is_given() -> None:
    assert payload_id("loan")(EVENT) == "l-1"
    with pytest.raises(InvalidRecordError):
        payload_id("loan")(TOMBSTONE)
    assert payload_id("loan", tombstones=position_id)(TOMBSTONE) == "library.book/1/7"
    with pytest.raises(InvalidRecordError):
        payload_id("isbn", tombstones=position_id)(EVENT)
