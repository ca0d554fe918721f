"""Produce to Kafka alongside a database transaction, without a connector. See docs/ways-without-a-connector.md."""
