"""Kafka Connect: the connector's config, state and offsets, through the REST API.

Code that also accesses another system, such as a Kafka topic, is in other packages.
"""
