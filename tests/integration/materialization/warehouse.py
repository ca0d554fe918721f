"""The target database of a stack."""

from __future__ import annotations

from outbox_kit.stack import StackState
from outbox_spark.jobs.model import PostgresTarget


def warehouse(state: StackState, schema: str = "public") -> PostgresTarget:
    """Return the stack's target database as the target of a job."""
    return PostgresTarget(
        host=state.postgres_host,
        port=state.postgres_port,
        database=state.target_database,
        user=state.materializer_user,
        password=state.materializer_password,
        schema=schema,
    )
