"""PostgreSQL, without Spark: the lock of a run, and maintenance."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest
from psycopg.sql import SQL
from tests.spark.kafka_log import sequence
from tests.spark.sql_batches import TOMBSTONE, UPSERT, Change, Table, fresh_schema

from outbox_events.errors import OutboxError
from outbox_spark.errors import OverlapError
from outbox_spark.jobs.model import PostgresTarget
from outbox_spark.sinks import PostgresTable
from outbox_spark.sinks.postgres.connection import KeptConnections

Open = Callable[[], PostgresTable]


@pytest.fixture
def thing(postgres: psycopg.conninfo.ConninfoDict) -> Open:
    address = {name: str(postgres[name]) for name in ("host", "dbname", "user", "password")}  # type: ignore[literal-required]
    target = PostgresTarget(
        address["host"], int(str(postgres["port"])), address["dbname"], address["user"], address["password"], "lock"
    )
    return lambda: PostgresTable(target, "thing")


def test_error_names_the_lock_holder(thing: Open, postgres: psycopg.conninfo.ConninfoDict) -> None:
    with thing() as holder:
        pid = holder._connection.info.backend_pid
        with pytest.raises(OverlapError) as caught, thing():
            pass
        assert caught.value.message.startswith(
            f"another run has locked table lock.thing: pid {pid}, from 127.0.0.1, since 20"
        )
        assert caught.value.message.endswith(" UTC")
    with psycopg.connect(**postgres) as connection:
        assert connection.execute("select count(*) from pg_locks where locktype = 'advisory'").fetchone() == (0,)


def test_runs_leave_a_connection_without_a_lock(thing: Open, postgres: psycopg.conninfo.ConninfoDict) -> None:
    connections, target = KeptConnections(), thing()._target
    with PostgresTable(target, "thing", connections=connections) as first:
        pid = first._connection.info.backend_pid
    with thing():
        pass  # another process can lock the table
    with PostgresTable(target, "other", connections=connections) as second:
        assert second._connection.info.backend_pid == pid
    with PostgresTable(target, "thing", connections=connections) as unfinished:
        unfinished._connection.execute("begin")
    with PostgresTable(target, "thing", connections=connections) as third:
        assert third._connection.info.backend_pid != pid
        with psycopg.connect(**postgres) as connection:
            connection.execute("select pg_terminate_backend(%s, 10000)", [third._connection.info.backend_pid])
    with PostgresTable(target, "thing", connections=connections):
        pass
    connections.close()


def test_reports_the_pid_of_an_invisible_lock_holder(
    thing: Open, postgres: psycopg.conninfo.ConninfoDict, monkeypatch: pytest.MonkeyPatch
) -> None:
    with psycopg.connect(**postgres, autocommit=True) as connection:
        connection.execute("create role stranger login")
        try:
            with thing() as holder:
                foreign = thing()
                monkeypatch.setattr(
                    foreign,
                    "_target",
                    PostgresTarget(
                        holder._target.host, holder._target.port, holder._target.database, "stranger", "", "lock"
                    ),
                )
                with pytest.raises(OverlapError) as caught, foreign:
                    pass
                assert caught.value.message.endswith(f"lock.thing: pid {holder._connection.info.backend_pid}")
        finally:
            connection.execute("drop role stranger")


def test_releases_the_lock_after_an_interrupted_exit(thing: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    interrupted = thing()
    with pytest.raises(KeyboardInterrupt), interrupted:
        monkeypatch.setattr(interrupted, "_drop_abandoned_staging", interrupt)
    with thing():
        pass


def test_releases_the_lock_of_a_dead_client(thing: Open) -> None:
    """With the server's defaults, the lock of a crashed client would remain for two hours."""
    with thing() as table:
        settings = {
            name: table._connection.execute(SQL("select current_setting({})").format(name)).fetchone()
            for name in ("tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count", "tcp_user_timeout")
        }
    assert settings == {
        "tcp_keepalives_idle": ("30",),
        "tcp_keepalives_interval": ("10",),
        "tcp_keepalives_count": ("3",),
        "tcp_user_timeout": ("60000",),
    }


def test_reads_times_in_any_date_style(thing: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGDATESTYLE", "German")
    with thing() as table:
        assert table._connection.execute("select now()").fetchone() is not None


def test_waits_for_the_server_have_a_limit(thing: Open) -> None:
    """Neither another session's lock nor an unreachable server blocks a run indefinitely."""
    with thing() as table:
        parameters = table._connection.info.get_parameters()
        assert table._connection.execute("select current_setting('lock_timeout')").fetchone() == ("1min",)
    limits = ("connect_timeout", "keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout")
    assert {name: parameters.get(name) for name in limits} == {
        "connect_timeout": "10",
        "keepalives_idle": "30",
        "keepalives_interval": "10",
        "keepalives_count": "3",
        "tcp_user_timeout": "60000",
    }


def test_rejects_commits_after_the_session_ended(thing: Open, postgres: psycopg.conninfo.ConninfoDict) -> None:
    """The session ends as after failed keepalives or pg_terminate_backend."""
    with psycopg.connect(**postgres, autocommit=True) as connection:
        dead = thing()
        with dead:
            pid = dead._connection.info.backend_pid
            # Waits until the session has ended.
            assert connection.execute("select pg_terminate_backend(%s, 10000)", (pid,)).fetchone() == (True,)
            with thing() as next_run:
                assert next_run.committed() is None
                with pytest.raises(psycopg.OperationalError):
                    dead.committed()


def test_maintain_reports_the_dead_rows_removed(thing: Open, postgres: psycopg.conninfo.ConninfoDict) -> None:
    with fresh_schema(postgres, "lock"):
        with psycopg.connect(**postgres) as connection:
            table = Table(connection, "lock")
            table.apply(Change(f"k{n}", UPSERT, sequence(n), n, n) for n in range(50))
            table.apply(Change(f"k{n}", TOMBSTONE, sequence(100 + n), 100 + n) for n in range(20))
            connection.execute("select pg_stat_force_next_flush()")
        with thing() as table_under_test:
            summary = table_under_test.maintain()
            assert summary == (
                '"lock"."thing": 20 dead rows before, 0 after; "lock"."thing__tombstones": 0 dead rows before, 0 after'
            )
            assert table_under_test.maintain().startswith('"lock"."thing": 0 dead rows before')


def test_maintain_reports_a_missing_table(thing: Open) -> None:
    with thing() as table, pytest.raises(OutboxError, match="lock"):
        table.maintain()
