"""Kafka topics, consumer groups and records, through librdkafka. Code for Kafka Connect is in `connect`."""
