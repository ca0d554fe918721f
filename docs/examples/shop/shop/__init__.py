"""A small service that sends and receives through an outbox."""
