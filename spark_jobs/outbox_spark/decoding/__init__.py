"""Decode record keys and values into rows."""
