"""Define the services of the embedded stack, one module per service. `outbox_kit.stack` controls their processes."""
