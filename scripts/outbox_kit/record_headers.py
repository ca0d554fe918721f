"""Headers of every record (docs/contract.md); no other header may have one of these names."""

CONTRACT_HEADERS = ("event_id", "event_type", "aggregate_type", "event_time", "source_sequence")
