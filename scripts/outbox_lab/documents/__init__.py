"""Generate the reference pages and the JSON Schemas from the code."""
