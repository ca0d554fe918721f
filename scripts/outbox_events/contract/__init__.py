"""The contract of records (docs/contract.md): headers, source_sequence, wire format, partitioner."""
