"""Topics with records, and a lock file that is not there."""

from __future__ import annotations

import pytest
from tests.unit.deployment.samples import Deployed, Given
from tests.unit.postgres.samples import DEPLOYED

from outbox_kit.deployment import history, make_plan
from outbox_kit.deployment.history import refuse_lost_lock
from outbox_kit.errors import RECOVER, RefusedError
from outbox_kit.pipeline import Lock


class _Kafka:
    """Two of the pipeline's topics, and one of somebody else."""

    def topics(self) -> dict[str, tuple[int, int]]:
        return {"library.book": (2, 1), "library.author": (1, 1), "other": (9, 1)}

    def bounds(self, name: str, partitions: int) -> dict[int, tuple[int, int]]:
        return {number: (0, len(name)) for number in range(partitions)}


def test_the_highest_epoch_of_all_state_topics_counts(deployed: Deployed, monkeypatch: pytest.MonkeyPatch) -> None:
    deployment = deployed()
    vars(deployment)["kafka"] = _Kafka()
    asked: dict[str, object] = {}

    def of_topic(_: object, topic: str, bounds: object) -> int:
        asked[topic] = bounds
        return {"library.book": 3}.get(topic, 1)

    monkeypatch.setattr(history.source_epoch, "highest_epoch", of_topic)
    assert history.highest_epoch(deployment) == 3
    assert asked == {"library.book": {0: (0, 12), 1: (0, 12)}, "library.author": {0: (0, 14)}}


@pytest.mark.parametrize(
    ("locked", "written", "words"),
    [
        (None, 1, "is not there: under epoch 1 every sink"),
        (None, 4, "is not there: under epoch 1 every sink"),
        (1, 1, "does not know the slot: under epoch 1 every sink"),
    ],
    ids=["first epoch", "later epoch", "source unknown"],
)
def test_records_of_an_epoch_that_would_be_written_again_are_refused(
    deployed: Deployed, lock: Lock, monkeypatch: pytest.MonkeyPatch, locked: int | None, written: int, words: str
) -> None:
    monkeypatch.setattr(history, "highest_epoch", lambda _: written)
    found = lock.model_copy(update={"source": None, "source_epoch": locked}) if locked else None
    with pytest.raises(RefusedError) as caught:
        refuse_lost_lock(deployed(), found)
    assert f"records of source epoch {written}, but the lock file " in caught.value.message
    assert words in caught.value.message
    assert RECOVER in caught.value.hint


@pytest.mark.parametrize(("locked", "written"), [(None, 0), (2, 1)], ids=["nothing written", "destroyed before"])
def test_records_of_an_earlier_epoch_pass(
    deployed: Deployed, lock: Lock, monkeypatch: pytest.MonkeyPatch, locked: int | None, written: int
) -> None:
    monkeypatch.setattr(history, "highest_epoch", lambda _: written)
    refuse_lost_lock(deployed(), lock.model_copy(update={"source": None, "source_epoch": locked}) if locked else None)


def test_with_a_lock_file_no_topic_is_read(deployed: Deployed, lock: Lock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "highest_epoch", lambda _: pytest.fail("read"))
    refuse_lost_lock(deployed(), lock)


def test_plan_refuses_before_it_looks_at_registry_and_connect(
    deployed: Deployed, given: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    given(DEPLOYED)
    monkeypatch.setattr(history, "highest_epoch", lambda _: 2)
    with pytest.raises(RefusedError, match="records of source epoch 2"):
        make_plan(deployed())
