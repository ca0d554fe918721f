"""Schema registry: desired and actual subjects, and checks. RegistryReader is in `outbox_events.schemas`."""
