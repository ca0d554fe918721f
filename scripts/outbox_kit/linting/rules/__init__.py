"""Lint rules, grouped by what they check. Reading files belongs in `linting.loading`."""
