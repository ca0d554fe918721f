"""Replay dead letters: send consumers' records, the connector's outbox rows, or the latest states again."""
