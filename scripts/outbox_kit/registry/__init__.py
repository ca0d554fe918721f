"""Compare, change and check the subjects of the schema registry. RegistryReader is in `outbox_events.schemas`."""
