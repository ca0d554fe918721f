"""Connectors that `adopt` accepts, and their offsets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.postgres.samples import SLOT
from tests.unit.support import Script, ScriptedServer

from outbox_events.errors import RefusedError
from outbox_kit.backfill.foreign_connector import (
    POSTGRES_CONNECTOR_CLASS,
    ForeignConnector,
    offset_of,
    read_foreign,
    refuse_different_outbox,
)
from outbox_kit.deployment import Deployment
from outbox_kit.pipeline import Connect
from outbox_kit.postgres.state import ActualDatabase

CONFIG = {
    "connector.class": POSTGRES_CONNECTOR_CLASS,
    "slot.name": "library_outbox",
    "publication.name": "library_outbox",
    "database.dbname": "library",
    "topic.prefix": "old",
}
INSERTS = {"pubinsert": True, "pubupdate": False, "pubdelete": False, "pubtruncate": False, "pubviaroot": True}

Deployed = Callable[..., Deployment]
Serve = Callable[[Script], ScriptedServer]


def database(*, active: bool = True, **publication: bool) -> ActualDatabase:
    return ActualDatabase(
        version=180000,
        database="library",
        wal_level="logical",
        system_identifier="1",
        timeline=1,
        is_standby=False,
        wal_position=10**9,
        columns={},
        publication={**INSERTS, **publication},
        slot=replace(SLOT, active=active),
        role=None,
    )


def test_applies_defaults_of_debezium() -> None:
    old = ForeignConnector("old", {"connector.class": POSTGRES_CONNECTOR_CLASS}, is_running=True)
    assert (old.slot, old.publication) == ("debezium", "dbz_publication")


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ([(404, {"message": "no"})], "connector 'old' does not exist"),
        ([(200, {"connector.class": "io.example.Other"})], "connector 'old' has class io.example.Other"),
    ],
)
def test_rejects_another_kind_of_connector(deployed: Deployed, serve: Serve, script: Script, message: str) -> None:
    deployment = deployed(connect=Connect(url=serve(script).url))
    with pytest.raises(RefusedError, match=message):
        read_foreign(deployment, "old")


@pytest.mark.parametrize(
    ("config", "actual", "message"),
    [
        ({"slot.name": "other"}, database(), "has slot.name 'other'.* 'library_outbox'"),
        ({"database.dbname": "shop"}, database(), "has database.dbname 'shop'.* 'library'"),
        ({}, database(active=False), "slot 'library_outbox' of this database is not active"),
        ({}, database(pubdelete=True), "publishes insert, delete, with publish_via_partition_root = true"),
        ({}, database(pubviaroot=False), "publishes insert, with publish_via_partition_root = false"),
    ],
)
def test_rejects_settings_that_would_lose_rows(
    deployed: Deployed, config: dict[str, str], actual: ActualDatabase, message: str
) -> None:
    with pytest.raises(RefusedError, match=message):
        refuse_different_outbox(deployed(), ForeignConnector("old", CONFIG | config, is_running=True), actual)


def test_stopped_connector_may_have_an_inactive_slot(deployed: Deployed) -> None:
    refuse_different_outbox(deployed(), ForeignConnector("old", CONFIG, is_running=False), database(active=False))


OFFSET = {"lsn": 25, "lsn_proc": 25, "lsn_commit": 20, "txId": 7, "ts_usec": 1}


def test_returns_the_offset_as_written_by_debezium(deployed: Deployed, serve: Serve) -> None:
    entries = [
        {"partition": {"server": "older"}, "offset": {"lsn": 1}},
        {"partition": {"server": "old"}, "offset": OFFSET},
    ]
    deployment = deployed(connect=Connect(url=serve([(200, {"offsets": entries})]).url))
    assert offset_of(deployment, ForeignConnector("old", CONFIG, is_running=False)) == OFFSET


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([], "connector 'old' has no offset"),
        ([{"partition": {"server": "other"}, "offset": OFFSET}], "no offset"),
        ([{"partition": {"server": "old"}, "offset": None}], "no offset"),
        ([{"partition": {"server": "old"}, "offset": {"txId": 1}}], "no offset"),
        ([{"partition": {"server": "old"}, "offset": {**OFFSET, "snapshot": True}}], "initial snapshot"),
        (
            [{"partition": {"server": "old"}, "offset": {**OFFSET, "snapshot": "INITIAL"}}],
            "initial snapshot",
        ),
    ],
)
def test_rejects_an_offset_without_an_lsn(
    deployed: Deployed, serve: Serve, entries: list[dict[str, Any]], message: str
) -> None:
    deployment = deployed(connect=Connect(url=serve([(200, {"offsets": entries})]).url))
    with pytest.raises(RefusedError, match=message):
        offset_of(deployment, ForeignConnector("old", CONFIG, is_running=False))
