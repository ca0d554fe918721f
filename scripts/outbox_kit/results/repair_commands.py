"""Commands that send states again, for the remedies of checks, the dangers of changes, and the hints of errors."""

from __future__ import annotations

from outbox_kit.pipeline import Pipeline

# Commands that send the latest states again, and tombstones of deleted aggregates, after rows did not reach Kafka.
RESEND_HINT = "`outbox backfill --restart`, then `outbox stuck --resend`"
# Hint of the errors whose cause `outbox recover` names; it needs the lock file.
RECOVER_HINT = "run `outbox recover`"
# Hint of the errors about a slot, source or lock file whose cause `outbox recover` does not know.
APPLY_RECOVER_HINT = f"run `outbox apply --recover`, {RESEND_HINT}"


def backfill_steps(pipeline: Pipeline, aggregate_types: list[str]) -> str:
    """Return the commands after which the topics of `aggregate_types` have the latest state of every aggregate."""
    queried = _types_with_backfill(pipeline, aggregate_types)
    written = [name for name in aggregate_types if name not in queried]
    steps = [f"run `outbox backfill --restart {' '.join(queried)}`"] if queried else []
    if written:
        names = " ".join(written)
        steps.append(
            f"let the service write every state of {names} again, and run `outbox backfill --acknowledge {names}`"
        )
    return "; ".join(steps)


def resend_steps(pipeline: Pipeline, aggregate_types: list[str] | None = None) -> str:
    """Return the commands of backfill_steps(), and the command that writes the tombstones of deleted aggregates.

    Without `aggregate_types`, the commands are for all types of the pipeline.
    """
    types = sorted(pipeline.aggregates) if aggregate_types is None else aggregate_types
    steps = backfill_steps(pipeline, types)
    return f"{steps}; then run `outbox stuck --resend`" if _types_with_backfill(pipeline, types) else steps


def recover_steps(pipeline: Pipeline) -> str:
    """Return the commands after a loss of rows whose cause `outbox recover` does not know."""
    return f"run `outbox apply --recover`; then {resend_steps(pipeline)}"


def _types_with_backfill(pipeline: Pipeline, aggregate_types: list[str]) -> list[str]:
    """Return the types whose states `outbox backfill` can write: it writes no logical decoding messages."""
    if not pipeline.source.uses_table:
        return []
    return [name for name in aggregate_types if name in pipeline.aggregates and pipeline.aggregates[name].backfill]
