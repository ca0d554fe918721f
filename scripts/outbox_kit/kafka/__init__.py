"""Access Kafka topics, consumer groups and records with librdkafka. Code for Kafka Connect is in `connect`."""
