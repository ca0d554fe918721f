"""Kafka: topics, consumer groups and records, through librdkafka.

Everything that needs a second system, or the Kafka Connect REST API, belongs elsewhere.
"""
