"""Environment variables for the production example, and pending changes."""

from collections.abc import Callable

from outbox_kit.results.changes import Change

RunMain = Callable[..., tuple[int, str, str]]
"""Run the command with these arguments. Return the exit code, stdout and stderr."""

SECRETS = {
    "OUTBOX_ADMIN_PASSWORD": "admin-s3cret",
    "OUTBOX_KAFKA_PASSWORD": "kafka-s3cret",
    "OUTBOX_REGISTRY_PASSWORD": "registry-s3cret",
}
CHANGES = [
    Change("kafka", "topic", "library.book", "create", "newest state of every book", "", "4 partitions, compact"),
    Change("connect", "connector", "c", "update", "restarts the task", "old", "new"),
]
