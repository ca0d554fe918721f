"""Exit codes of the `outbox` command."""

SUCCESS = 0
ERROR = 1  # an error, or a failed check
USAGE = 2
CHANGES_PENDING = 3  # `outbox plan`
INTERRUPTED = 130  # as a shell reports SIGINT
