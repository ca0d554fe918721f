"""Handle events of several keys at the same time, in the order of each key."""

from __future__ import annotations

from asyncio import Semaphore, TaskGroup
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from outbox_events.receiving.event import Event, Value
from outbox_events.receiving.observed import handled
from outbox_events.receiving.retries import require_at_least

Result = TypeVar("Result")


async def in_order_by_key(
    events: Sequence[Event[Value]], handle: Callable[[Event[Value]], Awaitable[Result]], *, limit: int = 16
) -> list[Result]:
    """Await `handle` for each event, and return the results in the order of the events.

    At most `limit` events are handled at the same time, each in a span of its own. An event waits for the earlier
    events of its key. After an error, the other calls are cancelled, and an ExceptionGroup is raised.
    """
    require_at_least(1, "limit", limit)
    by_key: dict[bytes | None, list[int]] = {}
    for number, event in enumerate(events):
        by_key.setdefault(event.key, []).append(number)
    results: dict[int, Result] = {}
    free = Semaphore(limit)

    async def handle_key(numbers: Sequence[int]) -> None:
        async with free:
            for number in numbers:
                with handled([events[number]], None):
                    results[number] = await handle(events[number])

    async with TaskGroup() as group:
        for numbers in by_key.values():
            group.create_task(handle_key(numbers))
    return [results[number] for number in range(len(events))]
