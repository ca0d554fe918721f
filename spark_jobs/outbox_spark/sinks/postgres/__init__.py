"""Write to PostgreSQL tables: stage rows by COPY, and merge the rows and the offsets in one transaction."""
