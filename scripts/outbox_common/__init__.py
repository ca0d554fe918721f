"""Code that outbox_kit and outbox_spark share: error texts, Avro schema evolution, columns, files and secrets.

It imports only the standard library, `requests` and `urllib3`, because the zip of the Spark jobs contains it.
"""
