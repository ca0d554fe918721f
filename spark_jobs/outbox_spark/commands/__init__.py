"""The commands: one module each, and their options, reports and exit codes."""
