"""Encoding of JSON as Avro, and check of Avro bodies."""
