"""Replay of dead letters: records of consumers, outbox rows of the connector, and latest states."""
