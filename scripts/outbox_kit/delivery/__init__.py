"""The one answer to "is it delivered?": rows of the outbox table, their proof, and when the slot confirms them."""
