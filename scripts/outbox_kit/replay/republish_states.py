"""Dead letters of the connector that the latest states of their aggregates replace."""

from __future__ import annotations

from collections.abc import Collection

from outbox_kit import backfill
from outbox_kit.dead_letters import dead_letter_topic
from outbox_kit.dead_letters.dead_letter import DeadLetter
from outbox_kit.dead_letters.dead_letter_topic import StoredDeadLetter
from outbox_kit.deployment import Deployment
from outbox_kit.errors import RefusedError
from outbox_kit.replay.send_records import DROP_HINT, Replay
from outbox_kit.results.progress import Reporter


def republish_dead_letters(
    deployment: Deployment, dead_letters: Collection[StoredDeadLetter], progress: Reporter
) -> Replay:
    """Write the latest states of the aggregates of the dead letters, then acknowledge the dead letters.

    Raises the errors of republish(), except RefusedError, which refuses one aggregate.
    """
    result, aggregates = Replay(), dict[tuple[str, str], list[DeadLetter]]()
    for entry in dead_letters:
        aggregates.setdefault((entry.dead_letter.aggregate_type, entry.dead_letter.key), []).append(entry.dead_letter)
    for (name, key), found in aggregates.items():
        try:
            if not key:
                raise RefusedError(f"{found[0].place}: the dead letter has no key", DROP_HINT)
            backfill.republish(deployment, name, [key], progress, exact=True)
        except RefusedError as error:
            result.refused += [(dead_letter, error) for dead_letter in found]
        else:
            places = [dead_letter.place for dead_letter in found]
            dead_letter_topic.acknowledge_places(deployment.kafka, deployment.pipeline, places)
            result.replayed += found
    return result
