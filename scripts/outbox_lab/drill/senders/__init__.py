"""Senders of the writers, which send the events of a transaction."""
