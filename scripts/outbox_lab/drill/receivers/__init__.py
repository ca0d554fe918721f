"""Receivers of a cell: one consumer group per strategy of outbox_events, and counts of their effects."""
