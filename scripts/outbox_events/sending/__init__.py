"""Rows of the outbox table, written in the service's own transaction. See docs/sending.md."""
