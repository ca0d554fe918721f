"""Avro schemas, and a reader for schema registries."""
