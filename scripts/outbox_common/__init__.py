"""Share code between outbox_kit and outbox_spark: error texts, Avro schema evolution, columns, files and secrets.

The package imports only the standard library, `requests` and `urllib3`, because it is part of the Spark jobs' zip.
"""
