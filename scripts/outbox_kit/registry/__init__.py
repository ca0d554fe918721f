"""Schema registry: desired and actual subjects, checks. RegistryReader, which Spark uses too, is in `outbox_common`."""
