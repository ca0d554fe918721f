"""Bloom filters: what was probably handled, in memory."""
