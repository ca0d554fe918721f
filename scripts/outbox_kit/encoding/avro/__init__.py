"""Encode JSON as Avro, and validate Avro bodies."""
