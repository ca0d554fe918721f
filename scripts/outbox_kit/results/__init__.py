"""Results of work on a pipeline: planned changes, outcomes of checks, progress, and the commands that repair."""
