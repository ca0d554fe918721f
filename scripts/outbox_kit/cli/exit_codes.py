"""Exit codes of the `outbox` command."""

SUCCESS = 0
ERROR = 1  # an error, a failed check, or a declined confirmation
USAGE = 2
CHANGES_PENDING = 3  # only `outbox plan` returns this code
INTERRUPTED = 130  # 128 + SIGINT, as shells report an interrupted command
