"""PostgreSQL source database: connection, catalog queries, desired and actual state, checks. No Kafka, no Connect."""
