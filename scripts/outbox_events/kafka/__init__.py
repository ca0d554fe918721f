"""Helpers for the Kafka client: records and headers, metadata requests, and reading of topics to their end."""
