"""Encoding of JSON as Avro, and validation of Avro bodies."""
