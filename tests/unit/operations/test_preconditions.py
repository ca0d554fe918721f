"""Limit of tombstones, and conditions under which a connector may start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.fake_connect import FakeConnect
from tests.unit.fake_postgres import FakePostgres
from tests.unit.operations.samples import CONFIRMED, NAME
from tests.unit.postgres.samples import DEPLOYED, SLOT

from outbox_events.contract.source_sequence import Version
from outbox_events.errors import RefusedError
from outbox_kit.connect.state import EPOCH_KEY
from outbox_kit.deployment import Deployment, preconditions
from outbox_kit.deployment.preconditions import require_connector, require_unchanged_source
from outbox_kit.operations.preconditions import (
    DEFAULT_LIMIT,
    DeletionLimit,
    Deletions,
    refuse_excessive,
    refuse_unsafe_start,
)
from outbox_kit.pipeline import Lock

KEYS = tuple(f"k{number}" for number in range(6))
DELETIONS = Deletions("book", KEYS, "library.book", 5, 100, "library.book", table_is_empty=False)


@pytest.mark.parametrize(
    ("limit", "deletions", "allowed"),
    [
        (DEFAULT_LIMIT, DELETIONS, True),
        (DEFAULT_LIMIT, replace(DELETIONS, deleted_states=6), False),
        (DEFAULT_LIMIT, replace(DELETIONS, deleted_states=0, topic_states=0), True),
        (DEFAULT_LIMIT, replace(DELETIONS, table_is_empty=True), False),
        ("4.9%", DELETIONS, False),
        ("100%", replace(DELETIONS, table_is_empty=True), False),
        ("0%", replace(DELETIONS, deleted_states=0), True),
        ("6", replace(DELETIONS, topic_states=5, table_is_empty=True), True),
        ("5", DELETIONS, False),
        ("0", DELETIONS, False),
    ],
)
def test_limits(limit: str, deletions: Deletions, allowed: bool) -> None:
    assert DeletionLimit.parse(limit).allows(deletions) is allowed


@pytest.mark.parametrize("text", ["", "%", "-1", "5 %", "5%%", "all", "1.5", "1e3"])
def test_rejects_other_limits(text: str) -> None:
    with pytest.raises(ValueError, match=r"such as 5% or .* 200"):
        DeletionLimit.parse(text)


def test_the_hint_names_a_number_that_allows_every_type() -> None:
    empty = replace(DELETIONS, aggregate_type="author", keys=KEYS[:2], table="library.author", table_is_empty=True)
    with pytest.raises(RefusedError) as caught:
        refuse_excessive([DELETIONS, empty], DeletionLimit.parse(DEFAULT_LIMIT))
    assert "2 tombstones for author" in caught.value.message
    assert "library.author, which is empty" in caught.value.message
    assert "for book" not in caught.value.message
    number = caught.value.hint.rpartition(" ")[2]
    refuse_excessive([DELETIONS, empty], DeletionLimit.parse(number))


def test_text_shows_counts_share_and_first_keys() -> None:
    assert DELETIONS.text == (
        "6 tombstones for book, because the keys have no aggregate in library.book: they delete 5 of 100 states "
        "(5.0 %) on topic library.book; keys: k0, k1, k2, k3, k4, ..."
    )


def test_accepts_a_connector_that_matches_the_lock_file(deployment: Deployment) -> None:
    refuse_unsafe_start(deployment, require_connector(deployment))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"slot": None}, "slot 'library_outbox'"),
        ({"system_identifier": "7302"}, "system identifier of the database is 7302"),
        ({"timeline": 2}, "timeline of the server is 2"),
        ({"is_standby": True}, "is a standby"),
        ({"wal_position": 5}, "the server is only at 5"),
        ({"slot": replace(SLOT, confirmed_flush=CONFIRMED + 1)}, "beyond the offset of connector"),
    ],
)
def test_rejects_a_different_source(
    deployment: Deployment, database: FakePostgres, change: dict[str, Any], message: str
) -> None:
    database.actual = replace(DEPLOYED, **change)
    with pytest.raises(RefusedError, match=message) as refused:
        refuse_unsafe_start(deployment, require_connector(deployment))
    assert refused.value.hint


@pytest.mark.parametrize(
    ("update", "message"),
    [({"unfinished": "recover"}, "was interrupted"), ({"source": None}, "does not contain the slot")],
    ids=["recovery", "no source"],
)
def test_rejects_a_lock_file_of_an_unfinished_apply(
    deployment: Deployment, lock: Lock, update: dict[str, object], message: str
) -> None:
    deployment.write_lock(lock.model_copy(update=update))
    with pytest.raises(RefusedError, match=message) as refused:
        refuse_unsafe_start(deployment, require_connector(deployment))
    assert refused.value.hint


def test_rejects_a_connector_without_an_offset(deployment: Deployment, connect: FakeConnect) -> None:
    connect.offsets.clear()
    with pytest.raises(RefusedError, match="has no offset") as refused:
        refuse_unsafe_start(deployment, require_connector(deployment))
    assert refused.value.hint


def test_rejects_an_offset_beyond_rows_that_no_topic_has(
    deployment: Deployment,
    database: FakePostgres,
    connect: FakeConnect,
    lock: Lock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    database.actual = replace(DEPLOYED, slot=replace(SLOT, confirmed_flush=CONFIRMED - 100, active=False))
    database.is_read = lambda: False
    deployment.write_lock(lock.model_copy(update={"config": {}}))
    refuse_unsafe_start(deployment, require_connector(deployment))
    database.events = 2
    config = connect.configs[NAME]
    connect.configs[NAME] = {}
    refuse_unsafe_start(deployment, require_connector(deployment))  # EventRouter, whose records have no source_sequence
    connect.configs[NAME] = config
    for before in ("", f"{lock.source_epoch:04x}_{0:016x}-{CONFIRMED - 101:016x}"):
        monkeypatch.setattr(preconditions, "highest_version", lambda _, text=before: Version(text))
        with pytest.raises(RefusedError, match="2 events in between") as refused:
            refuse_unsafe_start(deployment, require_connector(deployment))
    assert "`outbox offsets reset`" in refused.value.hint
    refuse_unsafe_start(deployment, require_connector(deployment), skip_rows=True)
    last = f"{lock.source_epoch:04x}_{0:016x}-{CONFIRMED:016x}"
    monkeypatch.setattr(preconditions, "highest_version", lambda _: Version(last))
    refuse_unsafe_start(deployment, require_connector(deployment))  # the last event before a crash


def test_rejects_a_connector_with_a_later_epoch(deployment: Deployment, connect: FakeConnect) -> None:
    connect.configs[NAME] = {EPOCH_KEY: "3"}
    with pytest.raises(RefusedError, match="writes source epoch 3") as refused:
        refuse_unsafe_start(deployment, require_connector(deployment))
    assert refused.value.hint


def test_requires_a_lock_file(deployed: Callable[..., Deployment]) -> None:
    with pytest.raises(RefusedError, match=r"library\.fixed\.lock\.json does not contain the slot"):
        require_unchanged_source(deployed())


def test_requires_a_connector(deployment: Deployment, connect: FakeConnect) -> None:
    connect.configs.clear()
    with pytest.raises(RefusedError, match="connector 'library-outbox' does not exist"):
        require_connector(deployment)
