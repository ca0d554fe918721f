"""Prove the delivery of outbox rows: read the table, compare it with the topics, and wait for the slot."""
