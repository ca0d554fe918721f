"""Define the names of record headers (docs/contract.md). Events must not set headers with these names."""

EVENT_ID, EVENT_TYPE, AGGREGATE_TYPE, EVENT_TIME = "event_id", "event_type", "aggregate_type", "event_time"
SOURCE_SEQUENCE = "source_sequence"
CONTRACT_HEADERS = (EVENT_ID, EVENT_TYPE, AGGREGATE_TYPE, EVENT_TIME, SOURCE_SEQUENCE)
"""Headers that every record has."""
CLOUDEVENTS_HEADERS = ("ce_specversion", "ce_id", "ce_source", "ce_type", "ce_time", "ce_subject", "content-type")
"""Headers of CloudEvents in binary mode. The connector adds them if `source.cloudevents_source` is set."""
