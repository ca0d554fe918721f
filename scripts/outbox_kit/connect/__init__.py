"""Read and change the connector's config, state and offsets through the REST API of Kafka Connect.

Code that accesses another system as well, such as Kafka, is in other packages.
"""
