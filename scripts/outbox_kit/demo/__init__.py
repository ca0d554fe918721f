"""The worked example: service, workload, comparison of values, report. Other packages do not import it."""
