"""Receivers: poll events, apply each once by a strategy, retry, recover, commit. See docs/receiving.md."""
