"""Deletion of outbox rows whose delivery is proven: rows of one snapshot, or partitions."""
