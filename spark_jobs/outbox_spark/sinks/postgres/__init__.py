"""PostgreSQL tables, with staging by COPY and a merge of rows and offsets in one transaction."""
