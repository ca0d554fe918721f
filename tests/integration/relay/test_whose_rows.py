"""A copied pipeline file, whose relay would take the rows of the first pipeline."""

from __future__ import annotations

from uuid import uuid4

import psycopg
import pytest
from tests.integration.relay.conftest import WITHOUT_CONNECT, relay_once
from tests.integration.support import Deploy, Outbox
from tests.integration.transforms.test_records import book, send

from outbox_events.errors import RefusedError
from outbox_kit.connect import lifecycle as connect_lifecycle
from outbox_kit.deployment import Deployment, apply
from outbox_kit.operations import lifecycle
from outbox_kit.postgres import client
from outbox_kit.relay import epochs
from outbox_kit.relay.tables import RelayTables
from outbox_kit.results import silent

TABLE = "public.owned_event"
COLUMNS = f"select count(*) from pg_attribute where attrelid = '{TABLE}'::regclass"


def test_deletes_nothing_while_another_pipeline_can_send_the_rows(deploy: Deploy, source_dsn: str) -> None:
    owner = deploy("owned")
    lifecycle.stop(owner, silent)
    copy = copied(deploy, "copied")
    send(source_dsn, "book", key := str(uuid4()), book(key), table=TABLE)
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        columns = connection.execute(COLUMNS).fetchall()

        def refusal(**options: object) -> str:
            with pytest.raises(RefusedError) as error:
                relay_once(copy, marks=True, **options)
            assert connection.execute(f"select count(*) from {TABLE}").fetchall() == [(1,)]
            assert connection.execute(COLUMNS).fetchall() == columns
            return error.value.message

        message = refusal()
        assert "'owned'" in message
        assert "pipeline 'owned'" in message
        assert "owned_p" in refusal(with_connect=False)
        connect_lifecycle.remove(owner.connect, "owned")
        assert "owned_p" in refusal()
        connection.execute("alter publication owned_p drop table public.owned_event")
        assert relay_once(copy).sent == 1


def test_sends_no_rows_of_another_database(relayed: Deployment, outbox: Outbox) -> None:
    """The lock file of a pipeline without a connector records the database, too."""
    lock = relayed.lock()
    assert lock is not None
    assert lock.source is None
    assert lock.system_identifier is not None
    relayed.write_lock(lock.model_copy(update={"database_identifier": "1"}))
    refused = outbox("relay", "--once", "--no-connect", pipeline=relayed.pipeline.name)
    assert (refused.code, "system identifier" in refused.stderr) == (1, True), refused.output
    accepted = outbox("relay", "--once", "--no-connect", "--new-database", pipeline=relayed.pipeline.name)
    assert accepted.code == 0, accepted.output
    relayed.write_lock(lock)


def test_only_the_first_of_two_pipelines_that_start_together_sends_the_rows(
    relayed: Deployment, deploy: Deploy
) -> None:
    relay_once(relayed)
    tables = RelayTables(copied(deploy, "together", table=relayed.pipeline.source.table).pipeline, marks=False)
    with client.connected(relayed.environment.source) as connection, pytest.raises(RefusedError):
        epochs.write_epoch(connection, tables, 9)


def copied(deploy: Deploy, name: str, table: str = TABLE) -> Deployment:
    """Deploy the topics of a pipeline file that was copied, with new names but the same table."""
    source = {"table": table, "publication": f"{name}_p", "slot": f"{name}_s"}
    deployment = deploy(name, source=source, applied=False)
    apply(deployment, silent, **WITHOUT_CONNECT)
    return deployment
