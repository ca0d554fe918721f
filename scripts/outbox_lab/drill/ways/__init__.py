"""Define and deploy the ways of sending that the drill tests."""
