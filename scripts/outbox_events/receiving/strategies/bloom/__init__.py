"""Keep Bloom filters in memory, which recognize events that were probably handled."""
