"""Translate client settings, determine the offsets to read, and read the records of Kafka topics."""
