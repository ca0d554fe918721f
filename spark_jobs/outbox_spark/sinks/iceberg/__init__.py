"""Iceberg tables: storage by catalog name, snapshots with progress, and maintenance."""
