"""The worked example: service, workload, comparison of values, report. No code of the product depends on it."""
