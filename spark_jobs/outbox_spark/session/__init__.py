"""Start and check the Spark session, and provide helpers for expressions, persisted rows, metrics and errors."""
