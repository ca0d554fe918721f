"""Implement the steps of a run: read, reduce, decode, write, compare and repair."""
