"""Schema registry: subjects, desired and actual state, checks. Reads that Spark shares are in `outbox_common`."""
