"""Names of the headers that every record has (docs/contract.md). Events must not set headers with these names."""

CONTRACT_HEADERS = ("event_id", "event_type", "aggregate_type", "event_time", "source_sequence")
