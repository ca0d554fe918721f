"""Spark jobs that materialize compacted topics into PostgreSQL, Delta and Iceberg tables."""
