"""A copied pipeline file, whose relay would take the rows of the first pipeline."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import psycopg
import pytest
from tests.integration.relay.conftest import WITHOUT_CONNECT, RelayProcess, relay_once, wait_empty
from tests.integration.support import Deploy, Outbox
from tests.integration.transforms.test_records import book, send

from outbox_events.errors import RefusedError
from outbox_kit.connect import lifecycle as connect_lifecycle
from outbox_kit.deployment import Deployment, apply
from outbox_kit.operations import lifecycle
from outbox_kit.postgres import client, ddl
from outbox_kit.relay import epochs, tables
from outbox_kit.relay.tables import RelayTables
from outbox_kit.results import silent
from outbox_kit.results.changes import System

TABLE = "public.owned_event"
APPLY_WITHOUT_CONNECT = ("apply", "--yes", "--only", "kafka", "--only", "registry")
END_SESSIONS = "select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'outbox-kit relay%'"
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
    assert lock.database is not None
    relay, others = ("relay", "--once", "--no-connect"), {"system_identifier": "1", "name": "x", "table": "public.x"}
    apply_again = APPLY_WITHOUT_CONNECT
    for key, value in others.items():
        relayed.write_lock(lock.model_copy(update={"database": lock.database.model_copy(update={key: value})}))
        for command in (relay, apply_again):
            refused = outbox(*command, pipeline=relayed.pipeline.name)
            assert (refused.code, value in refused.stderr) == (1, True), refused.output
    allowed = f"database {lock.database.system_identifier}/{lock.database.name}"
    accepted = outbox(*apply_again, "--allow", allowed, pipeline=relayed.pipeline.name)
    assert accepted.code == 0, accepted.output
    assert relayed.lock() == lock
    assert outbox(*relay, pipeline=relayed.pipeline.name).code == 0


@pytest.mark.parametrize("only", ["postgres", "kafka", "registry"])
def test_no_apply_accepts_the_table_of_another_relay(relayed: Deployment, deploy: Deploy, only: System) -> None:
    """Otherwise, `backfill` and `republish` would write rows that the relay sends to its topics."""
    relay_once(relayed)
    source = {"table": relayed.pipeline.source.table, "publication": "another_p", "slot": "another_s"}
    deployment = deploy("another", source=source, applied=False)
    with pytest.raises(RefusedError, match="a relay sends the rows"):
        apply(deployment, silent, only=[only])
    assert deployment.lock() is None


def test_only_the_first_of_two_pipelines_that_start_together_sends_the_rows(
    relayed: Deployment, deploy: Deploy
) -> None:
    source = {"table": relayed.pipeline.source.table, "publication": "together_p", "slot": "together_s"}
    tables = RelayTables(deploy("together", source=source, applied=False).pipeline, marks=False)
    relay_once(relayed)
    with client.connected(relayed.environment.source) as connection, pytest.raises(RefusedError):
        epochs.write_epoch(connection, tables, 9, relayed.kafka.cluster_id())


def test_sends_no_rows_of_the_same_pipeline_in_another_cluster(
    relayed: Deployment, outbox: Outbox, source_dsn: str
) -> None:
    """An environment with another Kafka cluster can have the address of this database by mistake, or a copy of it."""
    relay_once(relayed)
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        update = "update public.outbox_relay set cluster_id = %s where outbox = %s returning outbox"
        cluster_id = relayed.kafka.cluster_id()
        for stored, code in (("another", 1), (cluster_id, 0)):
            assert connection.execute(update, (stored, relayed.pipeline.source.table)).fetchone()
            for command in (("relay", "--once", "--no-connect"), APPLY_WITHOUT_CONNECT):
                done = outbox(*command, pipeline=relayed.pipeline.name)
                assert (done.code, "Kafka cluster another" in done.stderr) == (code, code == 1), done.output


@pytest.mark.parametrize("column", ["prefix", "cluster_id"])
def test_compares_the_table_again_with_each_new_session(
    relayed: Deployment, relay_process: Callable[..., RelayProcess], source_dsn: str, column: str
) -> None:
    """The address of the database can lead to another environment while the process runs."""
    process, table = relay_process(relayed), relayed.pipeline.source.table
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        read = f"select {column} from public.outbox_relay where outbox = %s"
        update = f"update public.outbox_relay set {column} = %s where outbox = %s"
        [(own,)] = connection.execute(read, (table,)).fetchall()
        send(source_dsn, "book", first := str(uuid4()), book(first), table=table)
        wait_empty(source_dsn, table)  # the process is running
        try:
            connection.execute(update, ("another", table))
            connection.execute(END_SESSIONS)
            send(source_dsn, "book", key := str(uuid4()), book(key), table=table)
            assert process.wait() == 1
            assert connection.execute(f"select count(*) from {table}").fetchall() == [(1,)]
        finally:
            connection.execute(update, (own, table))
    assert relay_once(relayed).sent == 1


def test_the_first_apply_of_a_relay_asks_before_the_database_of_a_connector(
    deploy: Deploy, outbox: Outbox, source_dsn: str
) -> None:
    """The publication is that of another environment with the same files."""
    owner = deploy("claimed")
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        mark = ddl.publication_mark(owner.pipeline, owner.environment, "another")
        connection.execute(f"comment on publication claimed_p is '{mark}'")
        lock_text = owner.lock_file.read_text()
        owner.lock_file.unlink()
        done = outbox(*APPLY_WITHOUT_CONNECT, pipeline="claimed")
        assert (done.code, '--allow "database' in done.stderr) == (1, True), done.output
        assert not owner.lock_file.exists()
        owner.lock_file.write_text(lock_text)
        destroy = ("destroy", "--drop-slot", "--confirm", "claimed@local")
        for command in (("republish", "book", "--key", "1"), ("relay", "--once"), destroy):
            done = outbox(*command, pipeline="claimed")
            assert (done.code, "claimed_p" in done.stderr) == (1, True), done.output
        connection.execute("comment on publication claimed_p is null")
        assert outbox("apply", "--yes", pipeline="claimed").code == 0
        own = ddl.publication_mark(owner.pipeline, owner.environment, owner.kafka.cluster_id())
        query = "select obj_description(oid, 'pg_publication') from pg_publication where pubname = 'claimed_p'"
        assert connection.execute(query).fetchone() == (own,)


def test_a_relay_accepts_an_earlier_publication_of_its_pipeline(deploy: Deploy, source_dsn: str) -> None:
    """The publication and the slot were renamed in the pipeline file before the move to the relay."""
    renamed = copied(deploy, "renamed", "public.renamed_event")
    earlier = renamed.pipeline.source.model_copy(update={"slot": "earlier_s"})
    earlier_pipeline = renamed.pipeline.model_copy(update={"source": earlier})
    mark = ddl.publication_mark(earlier_pipeline, renamed.environment, renamed.kafka.cluster_id())
    with client.connected(renamed.environment.source) as connection:
        tables.create_outbox(connection, RelayTables(renamed.pipeline, marks=False))
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        connection.execute("create publication earlier_p for table public.renamed_event with (publish = 'insert')")
        with pytest.raises(RefusedError, match="earlier_p"):
            relay_once(renamed)
        connection.execute(f"comment on publication earlier_p is '{mark}'")
        relay_once(renamed)


def copied(deploy: Deploy, name: str, table: str = TABLE) -> Deployment:
    """Deploy the topics of a pipeline file that was copied, with new names but the same table."""
    source = {"table": table, "publication": f"{name}_p", "slot": f"{name}_s"}
    deployment = deploy(name, source=source, applied=False)
    apply(deployment, silent, **WITHOUT_CONNECT)
    return deployment
