"""Delta tables: storage by path, commits with progress, and maintenance."""
