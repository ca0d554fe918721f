"""Commands that run on the embedded stack."""
