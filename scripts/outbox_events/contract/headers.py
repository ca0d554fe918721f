"""Names of the headers that every record has (docs/contract.md). Events must not set headers with these names."""

import re

CONTRACT_HEADERS = ("event_id", "event_type", "aggregate_type", "event_time", "source_sequence")
SOURCE_SEQUENCE = re.compile(r"([0-9a-f]{4})_([0-9a-f]{16})-([0-9a-f]{16})")
"""Value of the header source_sequence: source epoch, last commit LSN and event LSN."""
