"""Define records for the Kafka client, send metadata requests, and read topics to their end."""
