"""Delta tables: naming, commits with progress, maintenance."""
