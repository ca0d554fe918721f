"""Dead letters of the connector that the latest states of their aggregates replace."""

from __future__ import annotations

from collections.abc import Collection

from outbox_kit import backfill
from outbox_kit.dead_letters import dead_letter_topic
from outbox_kit.dead_letters.dead_letter import DeadLetter
from outbox_kit.dead_letters.dead_letter_topic import StoredLetter
from outbox_kit.deployment import Deployment
from outbox_kit.errors import RefusedError
from outbox_kit.replay.send_records import DROP_HINT, Replay
from outbox_kit.results.progress import Reporter


def republish_letters(deployment: Deployment, letters: Collection[StoredLetter], progress: Reporter) -> Replay:
    """Write the latest states of the aggregates of the dead letters, then acknowledge the dead letters.

    Raises the errors of republish(), except RefusedError, which refuses one aggregate.
    """
    result, aggregates = Replay(), dict[tuple[str, str], list[DeadLetter]]()
    for entry in letters:
        aggregates.setdefault((entry.letter.aggregate_type, entry.letter.key), []).append(entry.letter)
    for (name, key), found in aggregates.items():
        try:
            if not key:
                raise RefusedError(f"{found[0].place}: the dead letter has no key", DROP_HINT)
            backfill.republish(deployment, name, [key], progress, exact=True)
        except RefusedError as error:
            result.refused += [(letter, error) for letter in found]
        else:
            places = [letter.place for letter in found]
            dead_letter_topic.acknowledge_places(deployment.kafka, deployment.pipeline, places)
            result.replayed += found
    return result
