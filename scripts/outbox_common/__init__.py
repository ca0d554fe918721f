"""Code that outbox_kit and outbox_spark share: errors, HTTP, schema registry, Avro schemas.

Needs the standard library and `requests` only: the zip of the Spark jobs carries this package.
"""
