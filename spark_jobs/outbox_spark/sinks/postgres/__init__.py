"""PostgreSQL tables: staging by COPY, and the merge of rows and offsets in one transaction."""
