"""Ways of sending that the drill tests."""
