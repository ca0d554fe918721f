"""Define the contract for records (docs/contract.md): headers, source_sequence, wire format and partitioner."""
