"""Delivery of outbox rows: the rows of the table, the proof of their delivery, and the confirmation by the slot."""
