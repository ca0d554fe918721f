"""Helpers on the Kafka client: records and their headers, requests about topics, reading a topic to its end."""
