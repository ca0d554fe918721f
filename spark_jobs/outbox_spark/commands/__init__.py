"""The commands `outbox-materialize`, `outbox-rebuild`, `outbox-reconcile` and `outbox-maintain`."""
