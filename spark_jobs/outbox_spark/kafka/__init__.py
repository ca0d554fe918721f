"""Kafka topics: client settings, offsets to read, readers of their records."""
