"""Write outbox rows in the service's own transaction. See docs/sending.md."""
