"""Lint rules, one module per subject. `linting.loading` loads their input."""
