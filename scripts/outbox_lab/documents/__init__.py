"""Generators of documents: reference pages and JSON Schemas, from the code."""
