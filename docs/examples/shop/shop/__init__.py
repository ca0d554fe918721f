"""A service that sends events through an outbox table and consumes them."""
