"""Ways of sending under test."""
