"""Report whether a receiver polls, and whether its client delivers the records that the brokers have."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, DescribeClusterResult, ListOffsetsResultInfo

from outbox_events.kafka.topic_requests import LATEST, admin_client, isolation_level
from outbox_events.receiving.partition_states import Partition

CHECK_S = 10.0
REQUEST_S = 5.0


@dataclass(frozen=True)
class ReceiverStatus:
    """State of a receiver. The ends of the partitions are requested every CHECK_S after the first status."""

    is_closed: bool
    has_joined: bool
    """Whether the group has assigned partitions, or none, since the start, and has not removed the receiver since."""
    seconds_unjoined: float
    """Time for which the brokers have responded although the receiver has not joined. It is 0 during an outage."""
    seconds_since_poll: float
    """Time since the client was last polled. It includes the time for which the current batch has been applied."""
    max_poll_interval_s: float
    assigned: frozenset[Partition]
    waiting: frozenset[Partition]
    """Assigned partitions whose state the strategy has not restored yet."""
    paused: frozenset[Partition]
    """Partitions that wait for the next attempt of an event. They are not in `unread` and `stalled`."""
    seconds_since_check: float | None
    """Time since the brokers last returned the ends of the partitions. None if they have not yet."""
    unread: Mapping[Partition, int]
    """Number of offsets between the position and the end of each partition at the last check. Zeros are omitted."""
    stalled: Mapping[Partition, float]
    """Seconds for which the client has delivered nothing from a partition although the partition has unread records."""

    def is_alive(self, seconds: float | None = None) -> bool:
        """Return False if the receiver has not polled, or a partition has been stalled, for more than `seconds`.

        The default is max.poll.interval.ms. Also return False if the receiver has not joined for twice this time, which
        is longer than a rebalance. During an outage, a receiver that polls is alive.
        """
        limit = self.max_poll_interval_s if seconds is None else seconds
        longest = max([self.seconds_since_poll, self.seconds_unjoined / 2, *self.stalled.values()])
        return not self.is_closed and longest <= limit

    def is_ready(self, seconds: float | None = None) -> bool:
        """Return whether the receiver is alive, has joined the group, and has no partition that waits."""
        return self.is_alive(seconds) and self.has_joined and not self.waiting


class Progress:
    """Compares positions with the ends of the partitions. Only the thread that polls the client may use it."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """`settings` are the settings of the consumer."""
        self.is_watched = False
        """Whether the ends are requested."""
        self.is_drained = False
        """Whether the client had no more records to deliver at some time since the last check."""
        self.reached: dict[Partition, int] = {}
        """Ends that the client has reported. They are after markers of transactions, unlike positions."""
        self.checked_at: float | None = None
        self.unread: dict[Partition, int] = {}
        self.stalled: dict[Partition, float] = {}
        self.seconds_unjoined = 0.0
        self._settings = settings
        self._admin: AdminClient | None = None
        self._requests: dict[TopicPartition, Future[ListOffsetsResultInfo]] = {}
        self._requested_at = -CHECK_S
        self._cluster: Future[DescribeClusterResult] | None = None
        self._unjoined_since: float | None = None
        self._last: dict[Partition, tuple[int, float]] = {}  # position, and time since it is unchanged

    def check(self, positions: Callable[[], Mapping[Partition, int]], *, has_joined: bool) -> None:
        """Send a request, or evaluate its response, without waiting.

        A receiver that has joined requests the ends of its partitions. Until then, it asks whether brokers respond.
        """
        if has_joined:
            self.seconds_unjoined, self._unjoined_since, self._cluster = 0.0, None, None
        if self._requests:
            if all(request.done() for request in self._requests.values()):
                self._complete(positions())
        elif self._cluster is not None:
            if self._cluster.done():
                self._complete_unjoined(self._cluster)
                self._cluster = None
        elif self.is_watched and time.monotonic() - self._requested_at >= CHECK_S:
            self._requested_at = time.monotonic()
            self._admin = self._admin or admin_client(self._settings)
            level = isolation_level(self._settings)
            specs = {TopicPartition(*partition): LATEST for partition in positions()}
            if specs:
                self._requests = self._admin.list_offsets(specs, isolation_level=level, request_timeout=REQUEST_S)
            elif not has_joined:
                self._cluster = self._admin.describe_cluster(request_timeout=REQUEST_S)

    def _complete_unjoined(self, cluster: Future[DescribeClusterResult]) -> None:
        """Measure the time without a membership. librdkafka can fail to join again after it has lost all brokers."""
        if cluster.exception(0):
            self.seconds_unjoined, self._unjoined_since = 0.0, None
            self._admin = None
            return
        self._unjoined_since = self._unjoined_since or time.monotonic()
        self.seconds_unjoined = time.monotonic() - self._unjoined_since

    def _complete(self, positions: Mapping[Partition, int]) -> None:
        requests, self._requests = self._requests, {}
        if any(request.exception(0) for request in requests.values()):
            self._last, self.stalled = {}, {}  # an outage is not a stalled client
            self._admin = None  # it can have the same defect as a client that does not join again
            return
        now = self.checked_at = time.monotonic()
        ends = {(place.topic, place.partition): request.result(0).offset for place, request in requests.items()}
        # The position is unknown if the client has delivered neither a record nor the end. It does so unless it stalls.
        at = {each: max(position, self.reached.get(each, -1)) for each, position in positions.items() if each in ends}
        self.unread = {each: ends[each] - offset for each, offset in at.items() if 0 <= offset < ends[each]}
        last, self._last = self._last, {}
        for each, offset in at.items():
            if offset < ends[each]:
                before, since = last.get(each, (None, now))
                # Until the client has delivered everything else, the records can be in its queue.
                self._last[each] = offset, since if before == offset and self.is_drained else now
        self.stalled = {each: now - since for each, (_, since) in self._last.items() if since < now}
        self.is_drained = False
