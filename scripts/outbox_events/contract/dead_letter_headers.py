"""Define the headers of dead letters (docs/contract.md). A consumer adds all of them to the record's own headers."""

REASON, MESSAGE = "dead_letter_reason", "dead_letter_message"
CONNECTOR_HEADERS = (REASON, MESSAGE)
"""Headers that the connector adds to a row that it cannot route."""
GROUP, TOPIC, PARTITION = "dead_letter_group", "dead_letter_topic", "dead_letter_partition"
OFFSET, ATTEMPTS = "dead_letter_offset", "dead_letter_attempts"
CONSUMER_HEADERS = frozenset({REASON, MESSAGE, GROUP, TOPIC, PARTITION, OFFSET, ATTEMPTS})
"""Headers that a consumer adds to a record that it could not handle."""
