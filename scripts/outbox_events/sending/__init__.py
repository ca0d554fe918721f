"""Write rows of the outbox table in the service's own transaction. See docs/sending.md."""
