"""Delete outbox rows whose delivery is proven: the rows of one snapshot, or entire partitions."""
