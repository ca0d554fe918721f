"""PostgreSQL source database: connection, catalog queries, desired and actual state, and checks."""
