"""Write the files of a project for an existing database: schemas, state views, pipeline and environment files."""
