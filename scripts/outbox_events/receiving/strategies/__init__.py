"""Strategies for applying each event once or at least once."""
