"""Receivers of a cell: consumer groups with the strategies of outbox_events, and the count of their effects."""
