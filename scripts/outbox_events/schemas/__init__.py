"""Avro schemas, and the reader of a schema registry."""
