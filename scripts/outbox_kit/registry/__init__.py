"""Schema registry: subjects, desired and actual state, checks. The reader, also for Spark, is in `outbox_common`."""
