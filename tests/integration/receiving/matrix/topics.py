"""Contents of topics."""

from __future__ import annotations

from collections import Counter

from tests.integration.support import read_all

from outbox_kit.pipeline import Kafka


def count_values(bootstrap: str, topic: str, partitions: int) -> Counter[str]:
    """Return how often each value is in the committed records of a topic."""
    counts: Counter[str] = Counter()
    for record in read_all(Kafka(bootstrap_servers=bootstrap), topic, partitions):
        value = record.value() or b""
        counts[value if isinstance(value, str) else value.decode()] += 1
    return counts
