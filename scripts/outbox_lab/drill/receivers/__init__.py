"""Run the receivers of a cell, with one consumer group for each strategy of outbox_events, and count their effects."""
