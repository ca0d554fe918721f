"""Ways to produce to Kafka beside the database transaction, without a connector: docs/ways-without-a-connector.md."""
