"""The Spark session: settings, checks, and helpers for expressions, persisted rows, metrics and errors."""
