"""Define LatestState, which keeps the latest state of each aggregate in a compacted topic in memory."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from uuid import UUID

from outbox_events.contract.headers import SOURCE_SEQUENCE
from outbox_events.errors import ConfigurationError, OutboxError, RefusedError, UnreachableError, WaitTimeoutError
from outbox_events.latest_state import snapshot as snapshots
from outbox_events.latest_state.reader import TopicReader
from outbox_events.latest_state.states import Entry, States
from outbox_events.receiving.event import Decode, Event, InvalidRecordError, raw
from outbox_events.receiving.function_bodies import require_body

_LOG = logging.getLogger(__name__)
HOUR_S = 3600.0
POLL_S = 0.2
RESEND_HINT = "send the current state again: `outbox republish`"
# With surrogateescape, every key can be decoded, and different keys are decoded to different texts.
KEY_ERRORS = "surrogateescape"
RETRY_S = 1.0
STOP_S = 60.0
"""Time limit for stopping the thread. It exceeds the limits for checking the topic and saving a snapshot."""


class StaleStateError(OutboxError):
    """A state is not returned, because it might not be the latest state."""


class UnconfirmedStateError(StaleStateError, UnreachableError):
    """A state is not returned, because it is not confirmed that the topic was read to its end offsets.

    This is the case before the first load, and while the brokers do not respond.

    A receiver whose handler raises this error waits, as for other outages.
    """


@dataclass(frozen=True)
class StateStatus:
    """Counters and times of a LatestState."""

    is_loaded: bool
    """Whether the topic has been read to its end since the start or the last rebuild."""
    is_following: bool
    keys: int
    tombstones: int
    """Number of deleted keys whose versions are still kept."""
    undecodable: int
    """Number of keys whose newest record has no valid source_sequence or could not be decoded when it was requested."""
    ignored: int
    """Number of records that were older than the state of their key."""
    rebuilds: int
    """Number of times that the topic was read again from its beginning."""
    unread: int
    """Number of offsets between the current positions and the ends that the last check found."""
    seconds_behind: float | None
    """All records older than this many seconds have been read. None if the end has not been reached yet."""
    error: str
    """Last error of the background thread, or empty if its last check succeeded."""


class LatestState:
    """Maps aggregate ids to latest states. The states are kept as bytes, and each call to `get` decodes one state.

        with LatestState(settings, "library.author", decode=AvroValues(url)) as authors:
            authors.load()
            authors.follow()
            authors.get("a-1")

    Several threads can call the methods that read states. These methods raise StaleStateError instead of returning a
    state that might be outdated.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        topic: str,
        *,
        decode: Decode = raw,
        snapshot: Path | None = None,
        snapshot_interval_s: float = 300,
        snapshot_max_age_s: float = 12 * HOUR_S,
        tombstone_ttl_s: float = 24 * HOUR_S,
        max_staleness_s: float | None = 60,
        check_interval_s: float = 10,
    ) -> None:
        """`settings` are librdkafka properties. Events passed to `decode` have only the header source_sequence.

        A snapshot is ignored if it is older than `snapshot_max_age_s` or the topic's delete.retention.ms. The version
        of a deleted key is kept for `tombstone_ttl_s`. While the thread runs, states are not returned if the end of the
        topic was last confirmed more than `max_staleness_s` ago; None disables this check. Raises ConfigurationError.
        """
        require_body(decode)
        if max_staleness_s is not None and max_staleness_s <= check_interval_s:
            message = (
                f"max_staleness_s ({max_staleness_s:g}) must be greater than check_interval_s ({check_interval_s:g})"
            )
            raise ConfigurationError(message, "the end of the topic is confirmed once per check_interval_s")
        if snapshot is not None and (snapshot.is_dir() or not snapshot.parent.is_dir()):
            raise ConfigurationError(f"snapshot {snapshot} is not a file in an existing folder", "create the folder")
        self.topic = topic
        self._decode = decode
        self._snapshot = snapshot
        self._snapshot_interval_s = snapshot_interval_s
        self._snapshot_max_age_s = snapshot_max_age_s
        self._max_staleness_s = max_staleness_s
        self._check_interval_s = check_interval_s
        self._states = States(tombstone_ttl_s)
        self._reader = TopicReader(settings, topic, self._states)
        self._follower = Follower(f"latest state of {topic}", self._follow_step)
        self._lock = threading.Lock()  # only one thread reads at a time
        self._is_started = self._is_closed = False
        self._checked_at = self._saved_at = 0.0
        self._undecodable: dict[bytes, Entry] = {}

    # --- reading the topic

    def load(self, *, seconds: float = 60) -> None:
        """Read all records that were written before the call.

        After `seconds`, raises WaitTimeoutError, which contains the number of unread offsets. Another call continues
        where this call stopped. Raises UnreachableError.
        """
        begin, deadline = time.time(), time.monotonic() + seconds
        with self._reading():
            self._start()
            while (self._reader.read_until or 0) < begin:
                if time.monotonic() >= deadline:
                    message = f"waited {seconds:g} s for the end of topic {self.topic}; {self._progress()}"
                    raise WaitTimeoutError(message, "call load() again to continue, or set `seconds`")
                self._step(is_due=not self._reader.unread)

    def poll(self, seconds: float = 0) -> int:
        """Apply the records that arrive within `seconds`, and return their number. Raises UnreachableError."""
        with self._reading():
            self._start()
            count, _ = self._step(seconds)
            return count

    def follow(self) -> Self:
        """Apply new records in a background thread until close() or stop() is called."""
        if self._is_closed:
            raise RefusedError(f"the latest state of {self.topic} is closed", "create another LatestState")
        self._follower.start()
        return self

    def stop(self) -> None:
        """Stop the background thread. The current states are kept."""
        self._follower.stop()

    def close(self) -> None:
        """Stop the background thread, save the snapshot and close the connections."""
        self.stop()
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._save()
            self._reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- access

    def get(self, key: str | UUID, default: Any = None) -> Any:  # noqa: ANN401 - the decoder decides
        """Return the decoded state, or `default` if the aggregate does not exist or was deleted.

        Raises StaleStateError if the newest record of the key is not known or cannot be decoded. Other errors of the
        decoder are raised as they are.
        """
        key_bytes = str(key).encode(errors=KEY_ERRORS)
        entry = self._entry(key_bytes)
        return default if entry is None else self._decoded(key_bytes, entry)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str | UUID) and self._entry(str(key).encode(errors=KEY_ERRORS)) is not None

    def __len__(self) -> int:
        return len(self._current()[0])

    def keys(self) -> list[str]:
        """Return the aggregate ids."""
        return [key.decode(errors=KEY_ERRORS) for key in list(self._current()[0])]

    def items(self) -> Iterator[tuple[str, Any]]:
        """Yield the id and state of each aggregate that exists at the time of the call. Raises the errors of get()."""
        entries, unordered = self._current()
        for key in list(unordered):
            raise _unordered(key)
        # list() copies the entries atomically, because another thread might write.
        copied = list(entries.items())
        return ((key.decode(errors=KEY_ERRORS), self._decoded(key, entry)) for key, entry in copied)

    def stale_keys(self) -> list[str]:
        """Decode every state, and return the keys for which get() raises StaleStateError."""
        entries, unordered = self._current()
        stale = set(unordered)
        for key, entry in list(entries.items()):
            try:
                self._decoded(key, entry)
            except StaleStateError:
                stale.add(key)
        return sorted(key.decode(errors=KEY_ERRORS) for key in stale)

    def status(self) -> StateStatus:
        """Return counters and times. Never raises StaleStateError."""
        states, reader, error = self._states, self._reader, self._follower.error
        undecodable = {key for key, entry in list(self._undecodable.items()) if states.entries.get(key) is entry}
        return StateStatus(
            is_loaded=reader.read_until is not None,
            is_following=self._follower.is_running and not self._follower.has_failed,
            keys=len(states.entries),
            tombstones=len(states.tombstones),
            undecodable=len(undecodable | states.unordered),
            ignored=states.ignored,
            rebuilds=reader.restarts,
            unread=sum(reader.unread.values()),
            seconds_behind=None if reader.read_until is None else max(0.0, time.time() - reader.read_until),
            error="" if error is None else str(error) or type(error).__name__,
        )

    # --- implementation

    def _reading(self) -> threading.Lock:
        """Return the lock for reading the topic. Raises RefusedError while the background thread reads."""
        if self._is_closed or self._follower.is_running:
            state = "closed" if self._is_closed else "read by its background thread"
            raise RefusedError(f"the latest state of {self.topic} is {state}", "call load() and poll() before follow()")
        return self._lock

    def _start(self) -> None:
        """Begin after the snapshot, or at the beginning of the topic. load, poll and the thread call this first."""
        if self._is_started:
            return
        description, position = self._reader.requests.describe(), None
        max_age_s = min(self._snapshot_max_age_s, self._reader.requests.delete_retention_s())
        if self._snapshot is not None:
            position = snapshots.restore(self._snapshot, self.topic, description, max_age_s, self._states)
        if position is None:
            self._reader.restart(description)
        else:
            self._reader.resume(description, position.offsets, position.read_until)
        self._reader.max_gap_s = max(max_age_s, 3 * self._check_interval_s)
        self._saved_at = time.time()
        self._is_started = True

    def _follow_step(self) -> bool:
        with self._lock:
            self._start()
            return self._step()[1]

    def _step(self, seconds: float = POLL_S, *, is_due: bool = False) -> tuple[int, bool]:
        """Apply new records. Check the topic and save the snapshot when the interval for each has passed.

        Return the number of records and whether the topic was checked. If `is_due` is set, always check the topic.
        """
        now = time.time()
        is_due = is_due or abs(now - self._checked_at) >= self._check_interval_s
        if is_due:
            self._reader.check()
            self._checked_at = now
            self._states.forget_tombstones()
        count = self._reader.poll(seconds)
        if abs(now - self._saved_at) >= self._snapshot_interval_s:
            self._save()
        return count, is_due

    def _save(self) -> None:
        """Save the snapshot. Errors are only logged, because the next start can read the whole topic instead."""
        reader = self._reader
        if self._snapshot is None or reader.read_until is None:
            return
        self._saved_at = time.time()
        epoch, offsets = self._states.partition_epoch, dict(reader.positions)
        position = snapshots.Position(self.topic, reader.topic_id, offsets, epoch, reader.read_until)
        try:
            snapshots.save(self._snapshot, position, self._states)
        except (OSError, sqlite3.Error) as error:
            _LOG.error("cannot save the snapshot %s of topic %s: %s", self._snapshot, self.topic, error)

    def _progress(self) -> str:
        left = self._reader.unread
        numbers = ", ".join(map(str, sorted(left)))
        return (
            f"{len(self._states.entries)} keys, {sum(left.values())} unread offsets in partitions {numbers or '(none)'}"
        )

    def _entry(self, key: bytes) -> Entry | None:
        """Return the entry of a key. Raises StaleStateError if the entry might not be the latest."""
        entries, unordered = self._current()
        if key in unordered:  # check before reading the entry, because a newer record replaces the entry first
            raise _unordered(key)
        return entries.get(key)

    def _current(self) -> tuple[dict[bytes, Entry], set[bytes]]:
        """Return the entries, and the keys whose newest record is unknown. Raises StaleStateError if outdated."""
        # Read both objects before the checks, because a rebuild replaces them. They are current until the rebuild.
        unordered, entries = self._states.unordered, self._states.entries
        read_until, follower = self._reader.read_until, self._follower
        if follower.has_failed:
            message = f"the thread that reads topic {self.topic} has ended: {type(follower.error).__name__}"
            raise StaleStateError(message, "see the log, then call stop() and follow()") from follower.error
        if read_until is None:
            raise UnconfirmedStateError(f"topic {self.topic} has not been read to its end yet", "call load(), or wait")
        age_s = abs(time.time() - read_until)  # abs(), because the clock might have been set back
        if follower.is_running and self._max_staleness_s is not None and age_s > self._max_staleness_s:
            message = f"the end of topic {self.topic} was last confirmed {age_s:.0f} s ago; {self._progress()}"
            raise UnconfirmedStateError(message, "check the brokers, or set max_staleness_s") from follower.error
        return entries, unordered

    def _decoded(self, key: bytes, entry: Entry) -> Any:  # noqa: ANN401 - the decoder decides
        sequence, _, offset, partition, value = entry
        headers = {SOURCE_SEQUENCE: sequence.decode()} if sequence else {}
        try:
            decoded = Event(self.topic, partition, offset, key, value, headers, decode=self._decode).value
        except InvalidRecordError as error:
            self._undecodable[key] = entry
            text = key.decode(errors="replace")
            message = f"the newest record of key {text} cannot be decoded: {error.message}"
            raise StaleStateError(message, error.hint or RESEND_HINT) from error
        if self._undecodable:
            self._undecodable.pop(key, None)
        return decoded


def _unordered(key: bytes) -> StaleStateError:
    message = f"a record of key {key.decode(errors='replace')} has no valid source_sequence"
    return StaleStateError(message, RESEND_HINT)


class Follower:
    """Calls `step` in a thread until stop() is called. A transient error is stored, and `step` is called again."""

    def __init__(self, name: str, step: Callable[[], bool]) -> None:
        """`step` returns whether it has contacted the brokers successfully. Success clears a stored error."""
        self._name = name
        self._step = step
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self.error: Exception | None = None
        """Error of the last failed step, or None if a later step succeeded."""

    @property
    def is_running(self) -> bool:
        return self._thread is not None

    @property
    def has_failed(self) -> bool:
        """Whether the thread ended because of an unexpected error."""
        return self.error is not None and not isinstance(self.error, OutboxError)

    def start(self) -> None:
        """Start the thread unless it is already running."""
        if self._thread is not None:
            return
        self.error = None
        self._stopping.clear()
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, and wait until it has ended. Raises WaitTimeoutError."""
        if self._thread is None:
            return
        self._stopping.set()
        self._thread.join(STOP_S)
        if self._thread.is_alive():
            raise WaitTimeoutError(f"waited {STOP_S:g} s for the end of the thread {self._name}", "check the brokers")
        self._thread = None

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                if self._step():
                    self.error = None
            except OutboxError as error:
                if str(error) != str(self.error):  # an outage would repeat it every few seconds
                    _LOG.warning("%s: %s", self._name, error)
                self.error = error
                self._stopping.wait(RETRY_S)
            except Exception as error:
                self.error = error
                _LOG.exception("%s has ended", self._name)
                return
