"""Receivers of a cell: consumer groups with the strategies of outbox_kit.receiving, and the count of their effects."""
