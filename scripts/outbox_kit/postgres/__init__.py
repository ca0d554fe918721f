"""Connect to the PostgreSQL source database, read its catalog, bring it to the desired state, and check it."""
