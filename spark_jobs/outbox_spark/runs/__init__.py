"""Runs of one table: read, reduce, decode, write, compare and repair."""
