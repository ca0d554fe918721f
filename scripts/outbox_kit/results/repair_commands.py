"""Compose the commands that send states again, for use in remedies of checks, dangers of changes, and error hints."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from outbox_kit.pipeline import Pipeline

# After a loss of rows, these commands send the latest states and the tombstones of deleted aggregates again.
RESEND_HINT = "`outbox backfill --restart`, then `outbox stuck --resend`"
# Hint for errors whose cause `outbox recover` can identify. `outbox recover` requires the lock file.
RECOVER_HINT = "run `outbox recover`"
# Hint for errors about another system identifier. The option states that the new database replaces the other one.
NEW_DATABASE_HINT = "after a restore or migration: run `outbox recover --new-database`"
# Hint for errors about a slot, source or lock file whose cause `outbox recover` cannot identify.
APPLY_RECOVER_HINT = f"run `outbox apply --recover`, {RESEND_HINT}"


def backfill_steps(pipeline: Pipeline, aggregate_types: list[str], *, pending: bool = False) -> str:
    """Return the commands that send the latest state of every aggregate of `aggregate_types` to its topic.

    With `pending`, the lock file requires the backfill, so the command begins it without --restart. Repeated after an
    interruption, it then continues the backfill.
    """
    queried = _types_with_backfill(pipeline, aggregate_types)
    written = [name for name in aggregate_types if name not in queried]
    command = "outbox backfill" if pending else "outbox backfill --restart"
    steps = [f"run `{command} {' '.join(queried)}`"] if queried else []
    if written:
        names = " ".join(written)
        steps.append(
            f"have the service write every state of {names} again, then run `outbox backfill --acknowledge {names}`"
        )
    return "; ".join(steps)


def added_fields_step(pipeline: Pipeline, aggregate_type: str, added_fields: list[str]) -> str:
    """Return the step that writes added fields to existing states, which otherwise have the defaults; "" if none."""
    step = backfill_steps(pipeline, [aggregate_type]).partition(", then")[0]  # no backfill is pending
    if not added_fields:
        return ""
    has_query = bool(_types_with_backfill(pipeline, [aggregate_type]))
    names = " and ".join(added_fields)
    query = f"add {names} to aggregates.{aggregate_type}.backfill.query or its view, and " if has_query else ""
    return f"if the states of existing rows shall have {names}, {query}{step}"


def republish_command(aggregate_type: str, keys: Iterable[str]) -> str:
    """Return the command that sends the latest states of these aggregates."""
    return " ".join(["outbox republish", aggregate_type, *(f"--key {shlex.quote(key)}" for key in keys)])


def resend_steps(pipeline: Pipeline, aggregate_types: list[str] | None = None, *, pending: bool = False) -> str:
    """Return the commands of backfill_steps(), and the command that writes the tombstones of deleted aggregates.

    If `aggregate_types` is None, the commands are for all types of the pipeline.
    """
    types = sorted(pipeline.aggregates) if aggregate_types is None else aggregate_types
    steps = backfill_steps(pipeline, types, pending=pending)
    return f"{steps}; then run `outbox stuck --resend`" if _types_with_backfill(pipeline, types) else steps


def recover_steps(pipeline: Pipeline) -> str:
    """Return the commands to run after a loss of rows whose cause `outbox recover` cannot identify."""
    return f"run `outbox apply --recover`; then {resend_steps(pipeline)}"


def _types_with_backfill(pipeline: Pipeline, aggregate_types: list[str]) -> list[str]:
    """Return the types whose states `outbox backfill` can write. It cannot write logical decoding messages."""
    if not pipeline.source.uses_table:
        return []
    return [name for name in aggregate_types if name in pipeline.aggregates and pipeline.aggregates[name].backfill]
