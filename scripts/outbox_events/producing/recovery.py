"""Recovery of chained transactions: compare the recovery store with the destination topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Producer

from outbox_events.producing.delivered_events import READ_S, delivered_event_ids
from outbox_events.producing.delivery import DELIVERY_S
from outbox_events.producing.errors import NotCommittedError, NotDeliveredError
from outbox_events.producing.kafka_transaction import KafkaTransaction, fence
from outbox_events.producing.open_transactions import wait_until_ended
from outbox_events.producing.recovery_store import RecoveryStore, SavedRecord
from outbox_events.waiting import Deadline, Observation, wait_for

OPEN_TRANSACTION_HINT = "end the session that holds it: see backend_xid in pg_stat_activity"


@dataclass(frozen=True)
class Recovered:
    """Result of a recovery: numbers of records, and the event ids of phantoms.

    `proven` are on their topic, and their database transaction committed. `rolled_back` are on no topic, and their
    database transaction did not commit. `resent` were committed and missing on the topic. `phantoms` are on their
    topic although the database transaction did not commit: they cannot be withdrawn. `undecided` are so old that
    PostgreSQL no longer knows the outcome; their rows remain.
    """

    proven: int = 0
    rolled_back: int = 0
    resent: int = 0
    undecided: int = 0
    phantoms: tuple[str, ...] = ()


def recover(
    store: RecoveryStore, producer: Producer, settings: Mapping[str, Any], *, seconds: float = READ_S
) -> Recovered:
    """Resolve the rows that crashes have left; return what was found. Can be repeated at any time.

    `producer` is a new transactional producer with the transactional.id of the crashed one; it is fenced first, so an
    earlier process that still runs cannot commit in Kafka afterwards. The recovery then waits until the business
    transactions of that process have ended, because they could still add rows. `settings` are those of a
    confluent-kafka consumer: at least bootstrap.servers. Raises WaitTimeoutError if a business transaction is still
    open after `seconds`.
    """
    fence(producer, seconds=seconds)
    wait_until_ended(store.connection, store.sender, seconds=seconds)
    saved = store.read()
    outcomes = _wait_for_outcomes(store, saved, Deadline(seconds))
    topics = {row.record.topic for row in saved}
    delivered = delivered_event_ids(settings, topics, {row.event_id for row in saved}, seconds=seconds)
    groups = {key: [row for row in saved if _group(row, outcomes, delivered) == key] for key in GROUPS}
    _resend(producer, groups["resent"])
    store.forget_records(row for key in GROUPS if key != "undecided" for row in groups[key])
    phantoms = tuple(row.event_id for row in groups["phantoms"])
    return Recovered(**{key: len(groups[key]) for key in GROUPS if key != "phantoms"}, phantoms=phantoms)


GROUPS = ("proven", "rolled_back", "resent", "undecided", "phantoms")


def _wait_for_outcomes(store: RecoveryStore, saved: Sequence[SavedRecord], deadline: Deadline) -> dict[str, str | None]:
    """Return the outcome of each business transaction, after all of them have ended."""
    transaction_ids = {row.transaction_id for row in saved}

    def poll() -> Observation[dict[str, str | None]]:
        outcomes = store.outcomes(transaction_ids)
        running = sorted(xid for xid, outcome in outcomes.items() if outcome == "in progress")
        return Observation(None if running else outcomes, f"transactions in progress: {', '.join(running)}")

    if not saved:
        return {}
    subject = "the end of the business transactions"
    return wait_for(subject, poll, seconds=deadline.seconds_left, hint=OPEN_TRANSACTION_HINT)


def _group(row: SavedRecord, outcomes: Mapping[str, str | None], delivered: set[str]) -> str:
    outcome, is_delivered = outcomes[row.transaction_id], row.event_id in delivered
    if outcome is None:
        return "undecided"
    if outcome == "committed":
        return "proven" if is_delivered else "resent"
    return "phantoms" if is_delivered else "rolled_back"


def _resend(producer: Producer, saved: Sequence[SavedRecord], seconds: float = DELIVERY_S) -> None:
    """Send records in one Kafka transaction. After an error, the next recovery reads again which of them arrived."""
    if not saved:
        return
    transaction = KafkaTransaction(producer, seconds=seconds)
    try:
        for row in saved:
            transaction.send(row.record)
        transaction.flush()
        transaction.commit()
    except (NotDeliveredError, NotCommittedError):
        transaction.abort()
        raise
