"""Code that outbox_kit and outbox_spark share: errors, HTTP, schema registry, Avro schemas, secrets.

Imports only the standard library, `requests` and `urllib3`, because the zip of the Spark jobs contains this package.
"""
