"""Find records without the header source_sequence on topics whose other records have this header."""

from __future__ import annotations

from dataclasses import dataclass, field

from confluent_kafka import Message

from outbox_events.contract.source_sequence import Version

MAX_PLACES = 100


@dataclass
class UnsequencedRecords:
    """The first records of a topic without source_sequence. A topic without any source_sequence has another order."""

    has_sequences: bool = False
    _keys: dict[tuple[int, int], str] = field(default_factory=dict)

    def add(self, record: Message, version: Version) -> None:
        """Add a record of the topic. `version` is the version in its headers."""
        key = record.key()
        if version.sequence:
            self.has_sequences = True
        elif len(self._keys) < MAX_PLACES:
            text = key.decode(errors="replace") if isinstance(key, bytes) else ""
            self._keys[record.partition() or 0, record.offset() or 0] = text

    def update(self, other: UnsequencedRecords) -> None:
        """Add other records of the same topic."""
        self.has_sequences |= other.has_sequences
        self._keys |= other._keys

    @property
    def keys(self) -> dict[tuple[int, int], str]:
        """The keys of the records by partition and offset; empty if no record has a source_sequence."""
        return dict(sorted(self._keys.items())) if self.has_sequences else {}
