"""Strategies: how each event is applied once, or at least once."""
