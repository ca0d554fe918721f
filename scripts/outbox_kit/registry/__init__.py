"""Schema registry: desired and actual subjects, checks. RegistryReader is in `outbox_events.schemas`."""
