"""Names of the headers that every record has (docs/contract.md); nothing else may take them."""

CONTRACT_HEADERS = ("event_id", "event_type", "aggregate_type", "event_time", "source_sequence")
