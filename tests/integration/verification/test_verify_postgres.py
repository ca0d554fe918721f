"""Database checks on PostgreSQL 14, 16 and 18, each on a separate server."""

from __future__ import annotations

import shlex
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import psycopg
import pytest
from psycopg import sql
from tests.conftest import REPOSITORY
from tests.integration.verification.servers import ADMIN, reading, run_server

from outbox_events.errors import RejectedError
from outbox_events.waiting import Observation, wait_for
from outbox_kit.pipeline import CANARY_AGGREGATE, Environment, LockedSource, Pipeline, load_pipeline
from outbox_kit.postgres import apply as postgres_apply
from outbox_kit.postgres import client, count_undelivered, ddl, role_limits, state, triggers_and_rules, verify_queries
from outbox_kit.postgres import recent_events as events_module
from outbox_kit.postgres.checks import RULES, DatabaseState
from outbox_kit.postgres.ddl import insertion
from outbox_kit.postgres.other_tables import read_shadowing_tables
from outbox_kit.postgres.recent_events import has_recent_event, recent_events
from outbox_kit.postgres.replication_slot import read_slot
from outbox_kit.postgres.row_sequence import sequence_repair
from outbox_kit.postgres.slot_checks import RULES as SLOT_RULES
from outbox_kit.results import silent
from outbox_kit.results.checks import Check, Status, evaluate

ROW_FILTERS, FAILOVER, IDLE_TIMEOUT = 15, 17, 18
ADD_ROWS = "insert into filler select md5(i::text) from generate_series(1, 20000) as i"


@dataclass
class Database:
    """The deployed source database of one test."""

    version: int
    pipeline: Pipeline
    environment: Environment
    locked: LockedSource
    connection: client.Connection

    def sql(self, *statements: str) -> None:
        for statement in statements:
            self.connection.execute(statement.encode())

    def checks(self) -> dict[str, Check]:
        actual = state.read_actual(self.connection, self.pipeline, self.environment)
        additional = verify_queries.read_additional_state(
            self.connection, self.pipeline, self.environment, role_exists=bool(actual.role)
        )
        with client.connected(self.environment.source) as connection:
            additional = replace(additional, sequence_repair=sequence_repair(connection, self.pipeline.source))
        live = DatabaseState(self.pipeline, self.environment, self.locked, actual, additional)
        return {check.id: check for check in evaluate([*RULES, *SLOT_RULES], live)}

    def failing_checks(self) -> set[str]:
        return {name for name, check in self.checks().items() if check.status in (Status.FAIL, Status.WARN)}

    @contextmanager
    def read(self) -> Iterator[None]:
        """Read the slot with the connector's role during the block."""
        source, names = self.environment.source, self.pipeline.source
        dsn = f"host={source.host} port={source.port} dbname={source.database} user={source.connector.user}"
        with reading(dsn, names.slot, names.publication):
            yield
        self.wait_unread()

    def wait_unread(self) -> None:
        wait_for(
            "the slot to be free",
            lambda: Observation(None if self.reader() else True, "read"),
            seconds=20,
            interval=0.05,
        )

    def reader(self) -> int | None:
        slot = read_slot(self.connection, self.pipeline.source.slot)
        return slot.active_pid if slot else None


@pytest.fixture(scope="module", params=["14", "16", "18"])
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    """Apply the database changes of the library pipeline."""
    with run_server(request.param) as port:
        address = {"host": "127.0.0.1", "port": port, "user": ADMIN}
        with psycopg.connect(**address, dbname="postgres", autocommit=True) as connection:
            connection.execute("create database library")
            connection.execute("create role reader login replication")
            connection.execute("alter database library set datestyle = 'German'")
        environment = Environment.model_validate(
            {
                "name": "bare",
                "source": {
                    **{key: address[key] for key in ("host", "port")},
                    "database": "library",
                    "admin": {"user": ADMIN, "password": "unused"},
                    "connector": {"user": "reader", "password": "${env:NOBODY}"},
                },
                "kafka": {"bootstrap_servers": "nobody:1"},
                "registry": {"url": "http://nobody"},
                "connect": {"url": "http://nobody"},
            }
        )
        pipeline = load_pipeline(REPOSITORY / "connectors" / "library.yaml")
        with client.connected(environment.source) as opened:
            actual = state.read_actual(opened, pipeline, environment)
            changes = state.diff(pipeline, environment, actual)
            postgres_apply.apply(opened, pipeline, environment, changes, silent, None)
            locked = postgres_apply.source_identity(opened, pipeline, environment, None)
            yield Database(int(request.param), pipeline, environment, locked, opened)


def test_passes_for_a_deployed_database(database: Database) -> None:
    with database.read():
        checks = database.checks()
        assert {name for name, check in checks.items() if check.status is not Status.PASS} == set()
    assert checks["postgres.reachable"].seen == f"PostgreSQL {database.version}, database library"
    assert database.checks()["postgres.slot-active"].seen == "not active"


def test_reads_times_in_any_date_style(database: Database) -> None:
    for seconds in (None, 5.0):
        with client.connected(database.environment.source, seconds=seconds) as connection:
            row = connection.execute("select now() as now").fetchone()
            assert row is not None
            assert row["now"].tzinfo is not None


def test_detects_a_slot_read_by_another_role(database: Database) -> None:
    source = database.environment.source
    other = source.connector.model_copy(update={"user": ADMIN})
    environment = database.environment
    with_other = environment.model_copy(update={"source": source.model_copy(update={"connector": other})})
    database.environment = with_other
    try:
        with database.read():
            database.environment = environment
            assert database.failing_checks() == {"postgres.slot-active"}
            assert database.checks()["postgres.slot-active"].seen == f"read by {ADMIN}"
    finally:
        database.environment = environment


ALL_VERSIONS = [
    ("postgres.connector-role", "alter role reader noreplication", "alter role reader replication"),
    (
        "postgres.connector-role",
        "alter role reader valid until '2020-01-01'",
        "alter role reader valid until 'infinity'",
    ),
    ("postgres.connector-role", "alter role reader connection limit 0", "alter role reader connection limit -1"),
    (
        "postgres.connector-role",
        "alter database library set idle_session_timeout = '1s'",
        'alter role "reader" in database "library" set "idle_session_timeout" = 0',
    ),
    (
        "postgres.connector-role",
        "alter role reader in database library set statement_timeout = '1s'",
        'alter role "reader" in database "library" set "statement_timeout" = 0',
    ),
    (
        "postgres.connector-role",
        "revoke usage on schema public from public, reader",
        'grant usage on schema "public" to public, "reader"',
    ),
    (
        "postgres.connector-role",
        "revoke connect on database library from public",
        'grant connect on database "library" to public, "reader"',
    ),
    (
        "postgres.publication-filter",
        "alter table outbox_event rename column payload to body;"
        "alter table outbox_event add column payload jsonb generated always as (body) stored",
        "alter table outbox_event drop column payload; alter table outbox_event rename column body to payload",
    ),
    (
        "postgres.triggers",
        "create function nulls() returns trigger language plpgsql as 'begin new.payload = null; return new; end';"
        "create trigger nulls before insert on outbox_event for each row execute function nulls()",
        "drop function nulls cascade",
    ),
    (
        "postgres.rules",
        "create rule drops as on insert to outbox_event where new.event_type = 'x' do instead nothing",
        'drop rule "drops" on "public"."outbox_event"',
    ),
    (
        "postgres.row-security",
        "alter table outbox_event enable row level security; create policy own on outbox_event using (false);"
        "set role reader",
        "reset role; drop policy own on outbox_event; alter table outbox_event disable row level security",
    ),
    (
        "postgres.connector-role",
        "revoke execute on all functions in schema pg_catalog from public",
        "grant execute on all functions in schema pg_catalog to public",
    ),
    (
        "postgres.publication",
        "alter publication library_outbox set (publish_via_partition_root = false)",
        "alter publication library_outbox set (publish_via_partition_root = true)",
    ),
    (
        "postgres.not-null",
        "alter table outbox_event alter event_type drop not null",
        "alter table outbox_event alter event_type set not null",
    ),
    (
        "postgres.key-not-empty",
        "alter table outbox_event drop constraint outbox_event_aggregate_id_check",
        "alter table outbox_event add constraint outbox_event_aggregate_id_check check (length(aggregate_id) > 0)",
    ),
]


@pytest.mark.parametrize(
    ("identifier", "broken", "repaired"), ALL_VERSIONS, ids=[f"{i}: {b}" for i, b, _ in ALL_VERSIONS]
)
def test_reports_exactly_what_is_broken(database: Database, identifier: str, broken: str, repaired: str) -> None:
    database.sql(broken)
    try:
        named = database.failing_checks()
    finally:
        database.sql(repaired)
    assert named == {identifier, "postgres.slot-active"}
    assert database.failing_checks() == {"postgres.slot-active"}


def test_reports_a_table_that_was_created_again(database: Database) -> None:
    """The publication contains the original table. If somebody adds the new table to it, only the oid differs."""
    database.sql(
        "alter table outbox_event rename to original_event",
        "create table outbox_event (like original_event including all)",
        "grant select on outbox_event to reader",
    )
    try:
        assert database.failing_checks() == {
            "postgres.table-identity",
            "postgres.publication",
            "postgres.slot-active",
        }
        database.sql("alter publication library_outbox set table outbox_event")
        assert database.failing_checks() == {"postgres.table-identity", "postgres.slot-active"}
        actual = state.read_actual(database.connection, database.pipeline, database.environment)
        (change,) = state.diff(database.pipeline, database.environment, actual, database.locked)
        assert (change.object, change.action) == ("table public.outbox_event", "update")
    finally:
        database.sql(
            "drop table outbox_event",
            "alter table original_event rename to outbox_event",
            "alter publication library_outbox set table outbox_event",
        )
    assert database.failing_checks() == {"postgres.slot-active"}


def test_accepts_hooks_that_change_no_row(database: Database) -> None:
    """Hooks: an AFTER trigger, a disabled trigger, a rule that adds a statement, row security for other logins."""
    database.sql(
        "create function same() returns trigger language plpgsql as 'begin return new; end'",
        "create trigger later after insert on outbox_event for each row execute function same()",
        "create trigger disabled before insert on outbox_event for each row execute function same()",
        "alter table outbox_event disable trigger disabled",
        "create rule notifies as on insert to outbox_event do also notify outbox",
        "alter table outbox_event enable row level security",
    )
    try:
        named = database.failing_checks()
    finally:
        database.sql(
            "drop function same cascade",
            "drop rule notifies on outbox_event",
            "alter table outbox_event disable row level security",
        )
    assert named == {"postgres.slot-active"}


def test_names_a_sequence_that_is_behind_the_rows(database: Database) -> None:
    """Logical replication copies rows, but not the value of the sequence."""
    insert = (
        "insert into outbox_event (id, aggregate_type, aggregate_id, event_type, payload) "
        "values (gen_random_uuid(), 'book', 'a', 'x', '{}')"
    )
    database.sql(insert, insert, "alter table outbox_event alter column seq restart with 1")
    try:
        assert "postgres.row-sequence" in database.failing_checks()
        database.sql("set role reader")  # which has no privilege for the sequence
        with pytest.raises(RejectedError, match="permission denied for the sequence"):
            sequence_repair(database.connection, database.pipeline.source)
        database.sql("reset role", insert)
        remedy = database.checks()["postgres.row-sequence"].remedy
        database.sql(remedy.removeprefix("run `").removesuffix("`"))
        assert "postgres.row-sequence" not in database.failing_checks()
        database.sql(insert)
        [newest] = database.connection.execute("select seq from outbox_event order by ctid desc limit 1").fetchall()
    finally:
        rows = database.connection.execute("delete from outbox_event returning seq").fetchall()
    assert max(row["seq"] for row in rows) == newest["seq"]


def test_names_a_trigger_of_a_partition(database: Database) -> None:
    """The function is also named, because a trigger's name does not show its effect. The table's name needs quotes."""
    database.sql(
        'create table "Parted" (like outbox_event) partition by list (event_type)',
        "create table parted_a partition of \"Parted\" for values in ('a')",
        "create function skip() returns trigger language plpgsql as 'begin return null; end'",
        "create trigger skips before insert on parted_a for each row execute function skip()",
        'grant select on "Parted" to reader',
    )
    try:
        hooks = triggers_and_rules.read_triggers_and_rules(database.connection, "public.Parted")
        limits = role_limits.read_role_limits(database.connection, "reader", "public.Parted")
    finally:
        database.sql('drop table "Parted"', "drop function skip")
    assert hooks.triggers == ("skips (function skip)",)
    assert limits.can_select


def test_finds_other_tables_with_rows(database: Database) -> None:
    """Empty, temporary and partition tables, and tables that another pipeline publishes, are not reported."""
    database.sql(
        "create schema empty; create schema wrong; create schema other; create schema parted",
        "create table empty.outbox_event ()",
        "create table wrong.outbox_event (); insert into wrong.outbox_event default values",
        "create table other.outbox_event () inherits (public.outbox_event)",
        "insert into other.outbox_event (seq, aggregate_type, aggregate_id, event_type) values (1, 'a', '1', 'x')",
        "create publication other_p for table other.outbox_event",
        "create table parted.root (id int) partition by list (id)",
        "create table parted.outbox_event partition of parted.root for values in (1)",
        "insert into parted.root values (1)",
        "create temp table outbox_event (id int); insert into outbox_event values (1)",
        "create table late () inherits (public.outbox_event); create table later () inherits (late)",
        "insert into later (seq, aggregate_type, aggregate_id, event_type) values (1, 'a', '1', 'x')",
        "create publication everything for all tables",
    )
    source, child = database.pipeline.source, "public.later (inherits from public.late)"
    try:
        assert [table.text for table in read_shadowing_tables(database.connection, source)] == [child]
        database.sql("drop publication everything")
        actual = [table.text for table in read_shadowing_tables(database.connection, source)]
        assert actual == [child, "wrong.outbox_event (another schema)"]
        database.sql("set role reader")
        assert [table.has_rows for table in read_shadowing_tables(database.connection, source)] == [None, None]
    finally:
        database.sql(
            "reset role",
            "drop publication if exists everything",
            "drop publication other_p",
            "drop schema empty, wrong, other, parted cascade; drop table late cascade; drop table pg_temp.outbox_event",
        )


def test_reports_a_publication_filter_where_supported(database: Database) -> None:
    if database.version < ROW_FILTERS:
        with pytest.raises(psycopg.errors.SyntaxError):
            database.sql("alter publication library_outbox set table outbox_event where (event_type <> 'x')")
        assert database.checks()["postgres.publication-filter"].status is Status.PASS
        return
    for broken, observed in (
        ("outbox_event where (event_type <> 'x')", "a row filter"),
        (
            "outbox_event (id, event_type)",
            "a column list without aggregate_id, aggregate_type, created_at, headers, payload",
        ),
    ):
        database.sql(f"alter publication library_outbox set table {broken}")
        assert database.failing_checks() == {"postgres.publication-filter", "postgres.slot-active"}
        assert database.checks()["postgres.publication-filter"].seen == observed
    database.sql("alter publication library_outbox set table outbox_event")


def test_reports_a_slot_without_failover_where_supported(database: Database) -> None:
    slot = database.pipeline.source.slot
    database.sql(f"select pg_drop_replication_slot('{slot}')")
    client.create_slot(database.connection, slot, failover=False)
    actual = database.checks()["postgres.slot-failover"]
    assert actual.status is (Status.WARN if database.version >= FAILOVER else Status.PASS)
    missing = f"PostgreSQL {database.version} has no failover slots"
    assert actual.seen == ("not a failover slot" if database.version >= FAILOVER else missing)
    if database.version >= FAILOVER:
        _, address, _, statement = shlex.split(actual.remedy.split("`")[3])
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(statement)  # type: ignore[call-overload]
        assert database.checks()["postgres.slot-failover"].status is Status.PASS
    database.sql(f"select pg_drop_replication_slot('{slot}')")
    client.create_slot(database.connection, slot, failover=database.version >= FAILOVER)
    assert database.failing_checks() == {"postgres.slot-active"}


def test_reports_an_idle_timeout_where_supported(database: Database) -> None:
    if database.version < IDLE_TIMEOUT:
        assert database.checks()["postgres.idle-slot-timeout"].seen.endswith("has no idle_replication_slot_timeout")
        return
    database.sql("alter system set idle_replication_slot_timeout = '10min'", "select pg_reload_conf()")
    wait_for(
        "the setting",
        lambda: Observation("postgres.idle-slot-timeout" in database.failing_checks() or None, "not yet"),
        seconds=20,
        interval=0.05,
    )
    database.sql("alter system reset idle_replication_slot_timeout", "select pg_reload_conf()")


def test_counts_undelivered_messages_without_heartbeats(database: Database) -> None:
    """Dropping or advancing the slot would lose the messages, because they are not in a table."""
    source = database.pipeline.source.model_copy(
        update={"slot": "sent_s", "publication": "sent_p", "message_prefix": "outbox"}
    )
    connection = database.connection
    connection.execute(ddl.create_publication(source))
    client.create_slot(connection, source.slot, failover=False)
    slot = read_slot(connection, source.slot)
    assert slot is not None
    assert slot.confirmed_flush is not None
    start = slot.confirmed_flush
    database.sql(
        "select pg_logical_emit_message(true, 'outbox', 'one'), pg_logical_emit_message(true, 'outbox', 'two')",
        "select pg_logical_emit_message(true, 'outbox2', 'of others')",
        "select pg_logical_emit_message(true, 'outbo', 'of others')",
        "select pg_logical_emit_message(false, 'outbox', 'no transaction')",
        "select pg_logical_emit_message(false, 'outbox-heartbeat', '')",
        "begin",
        "select pg_logical_emit_message(true, 'outbox', 'rolled back')",
        "rollback",
    )
    end = client.read_server(connection)["wal_position"]
    none_delivered, all_delivered = (
        count_undelivered.DeliveredPosition(),
        count_undelivered.DeliveredPosition(commit=end),
    )
    try:
        assert count_undelivered.count_undelivered(connection, source, none_delivered) == 2
        assert count_undelivered.count_undelivered(connection, source, all_delivered) == 0
        assert count_undelivered.count_between(connection, source, after=start, upto=end) == 2
        assert count_undelivered.count_between(connection, source, after=end, upto=end) == 0
        rows = source.model_copy(update={"message_prefix": None})
        assert count_undelivered.count_undelivered(connection, rows, none_delivered) == 0
    finally:
        client.drop_slot(connection, source.slot)
        client.drop_publication(connection, source.publication)


def test_counts_undelivered_rows(database: Database) -> None:
    source, connection = database.pipeline.source, database.connection
    before = count_undelivered.count_undelivered(connection, source, count_undelivered.DeliveredPosition())
    database.sql(
        "insert into outbox_event (aggregate_type, aggregate_id, event_type) "
        "select 'book', '1', 'x' from generate_series(1, 2)",
        "select pg_logical_emit_message(true, 'outbox', 'of others')",
    )
    assert count_undelivered.count_undelivered(connection, source, count_undelivered.DeliveredPosition()) == before + 2


def test_partition_field_applies_to_one_aggregate_only(database: Database) -> None:
    """The canary, and a backfill of another aggregate, write only the columns of the contract."""
    book = database.pipeline.aggregates["book"].model_copy(update={"partition_field": "tenant"})
    source = database.pipeline.source.model_copy(update={"table": "public.tenanted"})
    pipeline = database.pipeline.model_copy(
        update={"source": source, "aggregates": {**database.pipeline.aggregates, "book": book}}
    )
    database.connection.execute(ddl.create_table(pipeline))
    try:
        assert state.column_problems(pipeline, client.read_column_types(database.connection, source.table)) == []
        row = sql.SQL("values (gen_random_uuid(), {}, '1', 'sent', '{{}}'::jsonb)").format(
            sql.Literal(CANARY_AGGREGATE)
        )
        assert database.connection.execute(insertion(source, row)).rowcount == 1
        row = sql.SQL("values (gen_random_uuid(), 'book', '1', 'sent', '{{}}'::jsonb, 'one')").format()
        assert database.connection.execute(insertion(source, row, "tenant")).rowcount == 1
    finally:
        database.sql("drop table tenanted")


def test_accepts_replication_by_role_membership(database: Database) -> None:
    database.sql("alter role reader noreplication", "create role rds_replication", "create role between")
    try:
        assert "postgres.connector-role" in database.failing_checks()
        database.sql("grant rds_replication to between", "grant between to reader")
        assert "postgres.connector-role" not in database.failing_checks()
    finally:
        database.sql("drop role between", "drop role rds_replication", "alter role reader replication")


def test_reports_an_unreadable_identity_with_its_grant(database: Database) -> None:
    """The other values are readable, including the values of other checks."""
    database.sql("revoke execute on function pg_control_system(), pg_control_checkpoint() from public")
    database.sql("set role reader")
    try:
        with pytest.raises(RejectedError, match=r"has no permission to execute pg_control_system\(\)") as caught:
            state.read_actual(database.connection, database.pipeline, database.environment)
        actual = state.read_actual(database.connection, database.pipeline, database.environment, system_identifier="")
    finally:
        database.sql("reset role")
        database.sql("grant execute on function pg_control_system(), pg_control_checkpoint() to public")
    assert caught.value.hint.startswith(f'run `grant execute on function pg_control_system() to "{ADMIN}"`')
    assert (actual.system_identifier, actual.timeline) == ("", database.locked.timeline)


def test_samples_the_newest_rows_of_partitions(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The partitioned table itself has no pages, and each partition has either old or new rows."""
    book = database.pipeline.aggregates["book"].model_copy(update={"partition_field": "tenant"})
    source = database.pipeline.source.model_copy(update={"table": "public.parted"})
    pipeline = database.pipeline.model_copy(update={"source": source, "aggregates": {"book": book}})
    database.sql(
        "create table parted (aggregate_type text, aggregate_id text, tenant text, day int) partition by list (day)",
        "create table parted_1 partition of parted for values in (1)",
        "create table parted_2 partition of parted for values in (2)",
        "insert into parted select 'book', 'old', i::text, 1 from generate_series(1, 2) i",
        "insert into parted select 'book', i::text, repeat('x', 500), 1 from generate_series(1, 1000) i",
        "insert into parted select 'book', 'new', i::text, 2 from generate_series(1, 2) i",
    )

    def sampled() -> tuple[dict[str, int] | None, str]:
        actual = verify_queries.read_additional_state(
            database.connection, pipeline, database.environment, role_exists=False
        )
        return actual.moved_key_counts, actual.sampling_error

    try:
        assert sampled() == ({"book": 2}, "")
        monkeypatch.setattr(verify_queries, "SAMPLE_PAGES", 4)
        assert sampled() == ({"book": 1}, "")
        monkeypatch.setattr(
            verify_queries, "MOVED_KEYS", "select pg_sleep(9)::text as keys from ({rows} limit %(limit)s) x"
        )
        database.sql("set statement_timeout = '200ms'")
        assert sampled() == (None, "reading the latest rows of the table exceeded statement_timeout")
    finally:
        database.sql("set statement_timeout = '30s'", "drop table parted")


def test_reads_the_newest_rows_of_aggregates(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row is due if it is neither too young nor too old. Rows after the newest due row can replace its record."""
    source = database.pipeline.source.model_copy(update={"table": "public.recent"})
    database.sql(
        "create table recent (like outbox_event including defaults including identity) partition by list (event_type)",
        "create table recent_1 partition of recent for values in ('1')",
        "create table recent_2 partition of recent for values in ('2')",
        "insert into recent (aggregate_type, aggregate_id, event_type, created_at) values "
        "('book', 'a', '1', now() - interval '3 min'), ('book', 'a', '2', now() - interval '2 min'), "
        "('book', 'a', '1', now()), ('book', 'young', '1', now()), ('book', 'old', '1', now() - interval '8 days'), "
        "('author', 'a', '1', now() - interval '2 min'), ('other', 'a', '1', now() - interval '2 min')",
    )
    try:
        rows = recent_events(database.connection, source, ["author", "book"], older_than=60)
        ids = database.connection.execute("select id::text as id, seq from recent")
        seqs = {row["id"]: row["seq"] for row in ids}
        actual = [
            (row["aggregate_type"], row["key"], [seqs[event_id] for event_id in row["event_ids"]]) for row in rows
        ]
        assert actual == [("author", "a", [6]), ("book", "a", [2, 3])]
        assert [time.time() - row["seconds"] for row in rows] == pytest.approx([120, 120], abs=30)
        database.sql(
            "insert into recent (aggregate_type, aggregate_id, event_type, created_at) "
            "select 'book', i::text, '1', now() - interval '1 min 5 s' from generate_series(1, 9) i"
        )
        monkeypatch.setattr(events_module, "MAX_ROWS", 4)
        rows = recent_events(database.connection, source, ["author", "book"], older_than=60)
        assert Counter(row["aggregate_type"] for row in rows) == {"book": 3, "author": 1}
        database.sql("update recent set created_at = now() - interval '8 days' where aggregate_type = 'other'")
        found = [has_recent_event(database.connection, source, name) for name in ("book", "other", "canary")]
        assert found == [True, False, False]
        database.sql("grant usage on schema public to reader", "set role reader")
        with pytest.raises(RejectedError, match="permission denied") as caught:
            recent_events(database.connection, source, ["book"], older_than=60)
        assert 'select ("id", "aggregate_type", "aggregate_id", "created_at", "seq", "ctid")' in caught.value.hint
        database.sql("reset role", "alter table recent drop column seq")
        with pytest.raises(RejectedError, match="no column seq"):
            recent_events(database.connection, source, ["book"], older_than=60)
    finally:
        database.sql("reset role", "drop table recent")


def test_reads_only_the_last_pages(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify_queries, "SAMPLE_PAGES", 1)
    source = database.pipeline.source.model_copy(update={"table": "public.recent"})
    database.sql(
        "create table recent (like outbox_event including defaults including identity)",
        "insert into recent (aggregate_type, aggregate_id, event_type, created_at) "
        "select 'book', i::text, repeat('x', 500), now() - interval '1 hour' from generate_series(1, 100) i",
    )
    try:
        rows = recent_events(database.connection, source, ["book"], older_than=60)
    finally:
        database.sql("drop table recent")
    assert 0 < len(rows) < 20
    assert rows[0]["key"] == "100"


def test_slow_slot_is_not_reported_as_a_lock(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(count_undelivered, "PEEK_TIMEOUT_MS", 1)
    monkeypatch.setattr(count_undelivered, "EVENTS", "select pg_sleep(5), %(slot)s, %(commit)s")
    with pytest.raises(RejectedError, match="took longer than") as caught:
        count_undelivered.count_undelivered(
            database.connection, database.pipeline.source, count_undelivered.DeliveredPosition()
        )
    assert "--drop-slot" in caught.value.hint


def test_reports_a_lost_slot(database: Database) -> None:
    """This is the last test of a server, because the slot is not recreated."""
    database.sql("alter system set max_slot_wal_keep_size = '1MB'", "select pg_reload_conf()")
    database.sql("create table filler (text text)")

    def poll() -> Observation[bool]:
        database.sql(ADD_ROWS, "select pg_switch_wal()", "checkpoint")
        actual = database.checks()["postgres.slot-wal"]
        return Observation(True if actual.seen.startswith("lost") else None, actual.seen)

    def limit() -> str:
        return database.checks()["postgres.slot-retained"].expected

    wait_for("the slot to be lost", poll, seconds=60, interval=0)
    assert database.failing_checks() == {"postgres.slot-wal", "postgres.slot-active", "postgres.slot-retained"}
    database.sql("alter system reset max_slot_wal_keep_size", "select pg_reload_conf()")
    wait_for("the setting", lambda: Observation("sets no limit" in limit() or None, limit()), seconds=10)
    assert database.checks()["postgres.slot-retained"].status is Status.UNKNOWN
