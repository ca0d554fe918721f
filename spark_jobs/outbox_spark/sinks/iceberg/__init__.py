"""Iceberg tables: naming, snapshots with progress, maintenance."""
