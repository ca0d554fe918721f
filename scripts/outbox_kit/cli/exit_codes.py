"""Exit codes of the `outbox` command."""

from outbox_common import interrupts

SUCCESS = 0
ERROR = 1  # an error, a failed check, or a declined confirmation
USAGE = 2
CHANGES_PENDING = 3  # only `outbox plan` returns this code
INTERRUPTED = interrupts.EXIT_CODE
