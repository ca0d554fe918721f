"""Decoding of record keys and values into rows."""
