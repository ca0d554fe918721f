"""Kafka Connect: the connector's config, state and offsets, through the REST API.

Kafka topics, and everything that needs a second system, belong elsewhere.
"""
