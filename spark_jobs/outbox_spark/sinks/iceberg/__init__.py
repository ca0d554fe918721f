"""Store Iceberg tables in catalogs, commit snapshots that contain the progress, and maintain the tables."""
