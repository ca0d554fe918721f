"""Kafka Connect: the connector's config, state and offsets, through the REST API.

Code that also accesses another system, such as Kafka, is in other packages.
"""
