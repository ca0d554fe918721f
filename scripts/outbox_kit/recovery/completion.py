"""Complete a recovery: for each aggregate type, prove that rows were delivered, or send the states again."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from outbox_events.errors import OutboxError, RefusedError
from outbox_events.text import plural
from outbox_kit import backfill as backfills
from outbox_kit.backfill import pending_backfills
from outbox_kit.backfill.pending_backfills import is_pending
from outbox_kit.deployment import Deployment
from outbox_kit.operations import stuck
from outbox_kit.operations.misplaced_states import misplaced_states
from outbox_kit.operations.preconditions import DeletionLimit, read_allowed_deletions
from outbox_kit.pruning.prune import PrunedType, PruneOptions, prune
from outbox_kit.recovery.resend_rows import ResentRows
from outbox_kit.results import Reporter
from outbox_kit.results.repair_commands import backfill_steps

# Rows that are written while the command runs are not stuck yet. docs/incidents.md uses the same age.
STUCK_AGE_S = 2


def prove_rows(deployment: Deployment, progress: Reporter, seconds: float) -> dict[str, PrunedType]:
    """Wait until the slot has confirmed all rows. Return a mapping from each aggregate type to its proven rows.

    No row is deleted. Raises the same errors as prune().
    """
    options = PruneOptions(older_than=0, wait_seconds=seconds, keep_newest=False, dry_run=True)
    return {entry.aggregate_type: entry for entry in prune(deployment, progress, options)}


def acknowledge_complete(
    deployment: Deployment, rows: ResentRows, proofs: dict[str, PrunedType], progress: Reporter
) -> Iterator[str]:
    """Acknowledge each type without `backfill` whose rows are all proven, or else yield the steps that it requires.

    Rows are deleted by age or by `outbox prune`. Therefore, if a row that was delivered before the loss remains in the
    table, none of the lost rows was deleted.
    """
    for name in _types(deployment, with_backfill=False):
        proof, steps = proofs.get(name), backfill_steps(deployment.pipeline, [name])
        if proof is not None and proof.unproven:
            yield f"{name}: no record proves {plural(proof.unproven, 'row')}; run `outbox stuck`"
        elif rows.without_row:
            yield f"{name}: rows are deleted by rules other than age, so lost events may have no row; {steps}"
        elif rows.undone[name]:
            aggregates = plural(rows.undone[name], "aggregate")
            reason = f"the newest rows of {aggregates} are missing, as happens after a restore to an older state"
            yield f"{name}: {reason}; {steps}"
        elif proof is None or not rows.delivered[name]:
            yield f"{name}: no row remains from before the loss, so lost events may have been deleted; {steps}"
        elif is_pending(deployment, name):
            backfills.acknowledge(deployment, [name], progress)


def request_states(deployment: Deployment, reason: str, *, with_backfill: bool) -> Iterator[str]:
    """Yield a request to write states again for each type. Omit types with `backfill` unless `with_backfill` is set."""
    for name in deployment.pipeline.aggregates if with_backfill else _types(deployment, with_backfill=False):
        yield f"{name}: {reason}; {backfill_steps(deployment.pipeline, [name])}"


def send_states(deployment: Deployment, limit: DeletionLimit, progress: Reporter) -> Iterator[str]:
    """For types with `backfill`, do what `backfill --restart` and `stuck --resend` do. Yield a text if this fails."""
    names = _types(deployment, with_backfill=True)
    if not names:
        return
    try:
        options = backfills.BackfillOptions(restart=True, stays_pending=True)
        backfills.backfill(deployment, names, progress, options)
        _resend_stuck(deployment, names, limit, progress)
        for name in names:  # until then, an interrupted recovery can be recognized
            pending_backfills.finish(deployment, name)
    except OutboxError as error:
        yield f"{', '.join(names)}: {error.message}; {error.hint}"


def _resend_stuck(deployment: Deployment, names: Collection[str], limit: DeletionLimit, progress: Reporter) -> None:
    """Send the states of stuck aggregates, and tombstones for deleted aggregates. Raises RefusedError."""
    found = stuck.list_stuck(deployment, progress, older_than=STUCK_AGE_S)
    aggregates = [entry for entry in found if entry.aggregate_type in names]
    if not aggregates:
        return
    misplaced = misplaced_states(deployment, aggregates)
    if misplaced:
        raise RefusedError("states are in wrong partitions", "run `outbox stuck --resend`")
    keys = stuck.keys_to_resend(deployment, aggregates)
    deletions = read_allowed_deletions(deployment, keys, limit, progress, exact=True)
    tombstones = {entry.aggregate_type: entry.keys for entry in deletions}
    count = stuck.resend(deployment, keys, progress, tombstones=tombstones, misplaced={})
    progress(f"{plural(count, 'stuck aggregate')} sent again, {sum(map(len, tombstones.values()))} of them deleted")


def _types(deployment: Deployment, *, with_backfill: bool) -> list[str]:
    aggregates = deployment.pipeline.aggregates.items()
    return [name for name, aggregate in aggregates if (aggregate.backfill is not None) is with_backfill]
