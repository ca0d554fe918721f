"""Jobs: which topic is materialized as which table, from a job file or a pipeline file."""
