"""The Spark session: its start and checks, and helpers for expressions, persisted rows, metrics and errors."""
