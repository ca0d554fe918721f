"""Generate reference pages and JSON Schemas from the code."""
