"""Backfills that the lock file requires."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from outbox_events.errors import ConfigurationError
from outbox_kit.backfill import acknowledge, pending_backfills
from outbox_kit.deployment import Deployment
from outbox_kit.kafka.topic_identity import require_backfill, types_with_pending_backfill
from outbox_kit.pipeline import Lock
from outbox_kit.results import silent

pytestmark = pytest.mark.usefixtures("database")


@pytest.fixture
def deployment(deployed: Callable[..., Deployment], lock: Lock) -> Deployment:
    """A deployment whose lock file requires a backfill of every topic."""
    created = deployed()
    created.write_lock(lock.model_copy(update={"topics": require_backfill(lock.topics)}))
    return created


def pending(deployment: Deployment) -> dict[str, str | None]:
    """Return the pending backfills of state topics by aggregate type."""
    lock = deployment.lock()
    assert lock is not None
    return {entry.aggregate_type: entry.pending_backfill for entry in lock.topics.values() if entry.aggregate_type}


def test_a_completed_backfill_is_no_longer_pending(deployment: Deployment) -> None:
    assert pending_backfills.is_required(deployment, "book")
    pending_backfills.begin(deployment, "book", restart=False)
    assert pending(deployment) == {"author": "required", "book": "started"}
    assert not pending_backfills.is_required(deployment, "book"), "an interrupted backfill is resumed"
    pending_backfills.finish(deployment, "book")
    assert pending(deployment) == {"author": "required", "book": None}


def test_a_backfill_from_before_the_loss_does_not_count(deployment: Deployment) -> None:
    """The topic was recreated while the backfill was running."""
    pending_backfills.finish(deployment, "book")
    assert pending(deployment)["book"] == "required"


def test_a_topic_with_every_state_remains_unchanged(deployed: Callable[..., Deployment], lock: Lock) -> None:
    deployment = deployed()
    deployment.write_lock(lock)
    assert not pending_backfills.is_required(deployment, "book")
    pending_backfills.begin(deployment, "book", restart=False)
    pending_backfills.finish(deployment, "book")
    assert deployment.lock() == lock


def test_an_interrupted_restart_remains_pending(deployed: Callable[..., Deployment], lock: Lock) -> None:
    deployment = deployed()
    deployment.write_lock(lock)
    pending_backfills.begin(deployment, "book", restart=True)
    assert pending(deployment)["book"] == "started"
    pending_backfills.finish(deployment, "book")
    assert deployment.lock() == lock


def test_acknowledges_states_that_the_service_wrote(deployment: Deployment) -> None:
    acknowledge(deployment, ["author", "book"], silent)
    lock = deployment.lock()
    assert lock is not None
    assert types_with_pending_backfill(lock.topics) == []


@pytest.mark.parametrize(("types", "message"), [([], "no aggregate type"), (["book", "loan"], "'loan'")])
def test_acknowledges_only_named_types(deployment: Deployment, types: list[str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        acknowledge(deployment, types, silent)
    assert pending(deployment) == {"author": "required", "book": "required"}
