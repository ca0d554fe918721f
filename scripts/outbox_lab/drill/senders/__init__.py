"""Senders of the writers: how the events of a transaction are sent."""
