"""Kafka topics: client settings, offsets to read, and readers of records."""
