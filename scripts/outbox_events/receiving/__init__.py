"""Receive events: poll, apply each event once with a strategy, retry, recover and commit. See docs/receiving.md."""
