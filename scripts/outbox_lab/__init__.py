"""Laboratory of the repository, which no distribution contains: fault drill, generators of documents."""
