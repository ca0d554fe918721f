"""Members of a consumer group: receivers in threads of this process."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from threading import Event as StopEvent
from threading import Thread
from typing import Any

from tests.integration.receiving.matrix.entries import Entry, Setup
from tests.integration.receiving.matrix.observed import Observed, Step, nothing

from outbox_events import Event, Handlers, Receiver, Retries

SECONDS = 60
# The server's minimum, so that the group detects a crash quickly.
SETTINGS = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 200, "auto.commit.interval.ms": 100}
FAST = Retries(attempts=3, first_delay_s=0.05, jitter=0)
Handle = Callable[[Event], None]


def ignore(_event: Event) -> None:
    """Do nothing besides the effect."""


def make_receiver(
    setup: Setup,
    entry: Entry,
    *,
    handle: Handle = ignore,
    before_commit: Step = nothing,
    after_commit: Step = nothing,
    settings: Mapping[str, Any] | None = None,
    batch_size: int = 1,
    **options: Any,  # noqa: ANN401 - options of Receiver
) -> tuple[Receiver[Any], Observed]:
    """Return a receiver, whose handlers write the effect of an event and then call `handle`, and its strategy."""
    handlers = Handlers[Any]()

    @handlers.otherwise
    def apply(event: Event, context: Any) -> None:  # noqa: ANN401 - depends on the strategy
        entry.write(setup, event, context)
        handle(event)

    strategy = Observed(entry.make(setup), before_commit=before_commit, after_commit=after_commit)
    merged = {"bootstrap.servers": setup.bootstrap, "group.id": setup.group, **SETTINGS, **(settings or {})}
    options = {"retries": FAST, **options}
    return Receiver(merged, [setup.topic], strategy, handlers, batch_size=batch_size, **options), strategy


class Member:
    """A receiver in a thread. It ends when it is stopped, or when one of the events in `until` has been processed."""

    def __init__(self, setup: Setup, entry: Entry, *, until: Collection[str] = (), **options: Any) -> None:  # noqa: ANN401
        self.receiver, self.strategy = make_receiver(setup, entry, **options)
        self.error: BaseException | None = None
        self._until = set(until)
        self._stop = StopEvent()
        self._thread = Thread(target=self._run, name=setup.group, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            with self.receiver as receiver:
                while not self._stop.is_set() and not self._until & self.strategy.settled:
                    receiver.poll(0.1)
        except BaseException as error:
            self.error = error

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def check(self) -> None:
        """Raise the error that has ended the receiver."""
        if self.error is not None:
            raise self.error

    def stop(self) -> None:
        """Stop the receiver after its current batch."""
        self._stop.set()
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()
