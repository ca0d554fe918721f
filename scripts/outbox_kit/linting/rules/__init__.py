"""Lint rules, grouped by what they check. Files are read by `linting.loading`."""
