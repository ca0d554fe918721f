"""Keep Bloom filters that recognize events that were probably handled, in memory and in the database."""
