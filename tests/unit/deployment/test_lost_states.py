"""Apply after a topic or the outbox table was deleted outside outbox-kit: danger, new identity, pending backfill."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.unit.deployment.samples import Deployed
from tests.unit.fake_kafka import FakeKafka
from tests.unit.fake_postgres import FakePostgres
from tests.unit.postgres.samples import DEPLOYED, LOCKED

from outbox_events.errors import RefusedError, UnreachableError
from outbox_events.kafka.topic_requests import Bounds
from outbox_kit.deployment import Deployment, Plan, apply, apply_prerequisites, make_plan
from outbox_kit.kafka.topic_identity import types_with_pending_backfill
from outbox_kit.pipeline import Lock
from outbox_kit.results import silent
from outbox_kit.results.changes import Change

pytestmark = pytest.mark.usefixtures("database", "kafka")
BOOK = "library.book"


@pytest.fixture
def deployment(deployed: Deployed, lock: Lock) -> Deployment:
    """A deployment with a lock file."""
    created = deployed()
    created.write_lock(lock)
    return created


def recorded(deployment: Deployment) -> Lock:
    lock = deployment.lock()
    assert lock is not None
    return lock


def recreate(kafka: FakeKafka) -> None:
    kafka.states[BOOK] = replace(kafka.states[BOOK], id="id-9")


def delete(kafka: FakeKafka) -> None:
    del kafka.states[BOOK]


@pytest.mark.parametrize("lose", [recreate, delete])
def test_a_lost_topic_must_be_allowed_and_then_requires_a_backfill(
    deployment: Deployment, kafka: FakeKafka, lock: Lock, lose: Callable[[FakeKafka], None]
) -> None:
    lose(kafka)
    with pytest.raises(RefusedError, match=r"topic library\.book: .* `outbox backfill --restart book`") as caught:
        apply(deployment, silent, only=["kafka"])
    assert f'--allow "topic {BOOK}"' in caught.value.hint
    assert recorded(deployment) == lock
    apply(deployment, silent, only=["kafka"], allow=[f"topic {BOOK}"])
    allowed = recorded(deployment)
    assert allowed.topics[BOOK].id == kafka.states[BOOK].id
    assert types_with_pending_backfill(allowed.topics) == ["book"]
    assert apply(deployment, silent, only=["kafka"]) == []
    assert recorded(deployment) == allowed, "the backfill remains pending"


@pytest.mark.parametrize(
    ("deployed_before", "topic", "expected"),
    [
        (True, "missing", ["book"]),
        (True, "empty", []),
        (False, "missing", ["book"]),
        (False, "empty", ["book"]),
        (False, "with records", []),
    ],
)
def test_a_topic_without_the_states_of_existing_rows_requires_a_backfill(
    deployment: Deployment,
    kafka: FakeKafka,
    database: FakePostgres,
    lock: Lock,
    deployed_before: bool,
    topic: str,
    expected: list[str],
) -> None:
    database.filled_tables = {'"library"."book"'}
    topics = {name: entry for name, entry in lock.topics.items() if name != BOOK}
    config = {"name": "library-outbox"} if deployed_before else None
    deployment.write_lock(lock.model_copy(update={"topics": topics, "config": config}))
    if topic == "missing":
        delete(kafka)
    elif topic == "with records":
        kafka.bounds_by_topic[BOOK] = {0: Bounds(0, 1)}
    plan = make_plan(deployment, only=["postgres", "kafka"])
    texts = [change.reason for change in plan.changes if change.name == BOOK]
    steps = {"missing": [True], "empty": [False], "with records": [False]}[topic]
    assert ["`outbox backfill book`" in text for text in texts] == steps
    allow = [] if topic == "missing" else [f"topic {BOOK}"]
    apply(deployment, silent, only=["postgres", "kafka"], allow=allow)
    assert types_with_pending_backfill(recorded(deployment).topics) == expected


def test_partitions_added_by_hand_must_be_allowed(deployment: Deployment, kafka: FakeKafka, lock: Lock) -> None:
    """The pipeline file declares the actual number of partitions, but the lock file has a different number."""
    book = lock.topics[BOOK].model_copy(update={"partitions": 2})
    deployment.write_lock(lock.model_copy(update={"topics": {**lock.topics, BOOK: book}}))
    with pytest.raises(RefusedError, match=r"topic library\.book: keys move"):
        apply(deployment, silent, only=["kafka"])
    apply(deployment, silent, only=["kafka"], allow=[f"topic {BOOK}"])
    assert recorded(deployment).topics[BOOK].partitions == kafka.states[BOOK].partitions


def test_a_recreated_table_must_be_allowed_and_then_requires_backfills(
    deployment: Deployment, database: FakePostgres
) -> None:
    database.actual = replace(DEPLOYED, table_oid=16401)
    with pytest.raises(RefusedError, match=r"table public\.outbox_event: .* `outbox backfill --restart author book`"):
        apply(deployment, silent, only=["postgres"])
    apply(deployment, silent, only=["postgres"], allow=["table public.outbox_event"])
    allowed = recorded(deployment)
    assert allowed.source == LOCKED.model_copy(update={"table_oid": 16401})
    assert types_with_pending_backfill(allowed.topics) == ["author", "book"]
    assert apply(deployment, silent, only=["postgres"]) == []


@pytest.mark.parametrize("records_topics", [True, False], ids=["", "after a loss of the lock file"])
def test_a_recovery_that_creates_the_slot_requires_backfills(
    deployment: Deployment, database: FakePostgres, lock: Lock, records_topics: bool
) -> None:
    """The loss is recorded before the slot is created, so that an interrupted apply does not hide it."""
    topics = lock.topics if records_topics else {}
    recovering = lock.model_copy(update={"source": None, "unfinished": "recover", "topics": topics})
    slot = Change("postgres", "slot", "library_outbox", "create", "why", danger="rows are lost")
    plan = Plan("library", "fixed", (slot,), recover=True)
    deployment.write_lock(recovering)
    database.down = True
    with pytest.raises(UnreachableError):
        apply_prerequisites(deployment, plan, silent)
    assert types_with_pending_backfill(recorded(deployment).topics) == ["author", "book"]
