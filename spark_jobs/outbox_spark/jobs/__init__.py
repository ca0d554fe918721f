"""Jobs: what is materialized where, from a job file or from the pipeline file."""
