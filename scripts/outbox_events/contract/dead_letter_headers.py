"""Names of the headers of dead letters (docs/contract.md). Consumers add all of them to the record's own headers."""

REASON, MESSAGE = "dead_letter_reason", "dead_letter_message"
CONNECTOR_HEADERS = (REASON, MESSAGE)
"""Headers that the connector adds to the row that has no record."""
GROUP, TOPIC, PARTITION = "dead_letter_group", "dead_letter_topic", "dead_letter_partition"
OFFSET, ATTEMPTS = "dead_letter_offset", "dead_letter_attempts"
CONSUMER_HEADERS = frozenset({REASON, MESSAGE, GROUP, TOPIC, PARTITION, OFFSET, ATTEMPTS})
"""Headers that a consumer adds to the record that it could not handle."""
