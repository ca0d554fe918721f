"""Deletion of outbox rows whose delivery is proven: prerequisites, proof, and the rows of one snapshot."""
