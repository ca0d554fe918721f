"""The SQL script for a DBA, run as printed. `apply` then makes no changes, and each role has only its privileges."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from psycopg import sql
from tests.integration.support import Outbox

from outbox_kit.pipeline import load_environment, load_pipeline
from outbox_kit.postgres import client
from outbox_kit.postgres.recent_events import recent_events
from outbox_kit.postgres.state import read_actual
from outbox_kit.stack import StackState

NAME = "dba"
TABLE = f"public.{NAME}_event"
ROLES = {"owner": 'dba $role$ "owner"', "connector": "dba $_role$; connector"}
ROLES |= {"verifier": "dba's verifier", "materializer": "Dba-Materializer"}
PASSWORD = "only-here"
INSERT = (
    f"insert into {TABLE} (aggregate_type, aggregate_id, event_type, tenant) values ('outbox-canary', 'c', 'x', 't')"
)


def statements(text: str) -> list[str]:
    """Return the statements of a psql script."""
    without_comments = re.sub(r"^--.*\n", "", text, flags=re.MULTILINE)
    return [paragraph for paragraph in without_comments.strip().split("\n\n") if paragraph.strip()]


@pytest.fixture(scope="module")
def environment(project: Path) -> str:
    """Create an environment with separate roles on the shared stack; return its name."""
    folder = project / "connectors" / "environments"
    data = yaml.safe_load((folder / "local.yaml").read_text(encoding="utf-8"))
    data["name"] = NAME
    data["source"]["admin"] = {"user": ROLES["owner"], "password": PASSWORD}
    data["source"]["connector"]["user"] = ROLES["connector"]
    data["source"]["verifier"] = {"user": ROLES["verifier"], "password": PASSWORD}
    data["targets"]["warehouse"] |= {"user": ROLES["materializer"], "password": PASSWORD, "schema": NAME}
    (folder / f"{NAME}.yaml").write_text(yaml.safe_dump(data), encoding="utf-8")
    return NAME


@pytest.fixture(scope="module")
def scripts(
    outbox: Outbox, environment: str, make_pipeline: Callable[..., Path], source_dsn: str
) -> dict[str, list[str]]:
    """Return the SQL statements that `outbox render` prints, by database."""
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        connection.execute(f"create schema {NAME}_shop")
        for table in ("item", "price"):
            connection.execute(f"create table {NAME}_shop.{table} (id uuid primary key)")
    columns = "id::text as aggregate_id, null as payload, null as tenant"
    query = f"select {columns} from {NAME}_shop.item join {NAME}_shop.price using (id)"
    backfill = {"table": f"{NAME}_shop.item", "key": "id", "query": query}
    aggregates = {"book": {"schema": "schemas/book.avsc", "partition_field": "tenant", "backfill": backfill}}
    make_pipeline(NAME, aggregates=aggregates)
    result = {}
    for database, options in (("library", []), ("warehouse", ["--target", "warehouse"])):
        done = outbox("render", "--format", "sql", *options, pipeline=NAME, environment=environment)
        assert done.code == 0, done.output
        result[database] = statements(done.stdout)
    return result


@pytest.fixture(scope="module")
def as_role(scripts: dict[str, list[str]], state: StackState) -> Callable[..., Any]:
    """Run each script twice as a superuser. Return a function that logs in as one of the roles."""
    superuser = {name: state.dsn(state.admin_user, state.admin_password, name) for name in ("library", "warehouse")}
    with psycopg.connect(superuser["library"]) as connection:
        assert connection.execute("select rolsuper from pg_roles where rolname = current_user").fetchone() == (True,)
    for database, script in scripts.items():
        with psycopg.connect(superuser[database], autocommit=True) as connection:
            for statement in [*script, *script]:
                connection.execute(statement.encode())
    with psycopg.connect(superuser["library"], autocommit=True) as connection:
        # An earlier module may have run the relay or a backfill as another role. Both create missing tables.
        tables = "outbox_relay, outbox_relay_batch, outbox_relay_progress, outbox_backfill"
        connection.execute(f"drop table if exists {tables}")
        for role in ROLES.values():
            alter = sql.SQL("alter role {} password {}").format(sql.Identifier(role), sql.Literal(PASSWORD))
            connection.execute(alter)

    @contextmanager
    def log_in(role: str, database: str = "library") -> Iterator[psycopg.Connection[Any]]:
        dsn = superuser[database]
        with psycopg.connect(dsn, user=ROLES[role], password=PASSWORD, autocommit=True) as connection:
            yield connection

    return log_in


def test_apply_has_no_database_changes_after_the_script(outbox: Outbox, as_role: object, environment: str) -> None:
    """The plan runs as the owner, which needs only the privileges that the script grants."""
    del as_role
    done = outbox("plan", "--output", "json", pipeline=NAME, environment=environment)
    assert done.code == 3, done.output
    systems = [change["system"] for change in json.loads(done.stdout)["changes"]]
    assert "kafka" in systems
    assert "postgres" not in systems


ALLOWED = [
    ("owner", "library", f"update {TABLE} set event_type = 'y' where false"),
    ("owner", "library", f"alter table {TABLE} add column added int"),
    ("owner", "library", f"alter publication {NAME}_p set (publish = 'insert')"),
    ("owner", "library", f"create publication dba_more for table {TABLE}"),
    ("owner", "library", "drop publication dba_more"),
    ("owner", "library", "select pg_create_logical_replication_slot('dba_more', 'pgoutput')"),
    ("owner", "library", "select pg_drop_replication_slot('dba_more')"),
    ("owner", "library", "select system_identifier from pg_control_system()"),
    ("connector", "library", f"select * from {TABLE}"),
    (
        "connector",
        "library",
        f"select * from pg_logical_slot_peek_binary_changes('{NAME}_s', null, 1, "
        f"'proto_version', '1', 'publication_names', '{NAME}_p')",
    ),
    ("connector", "library", "select pg_logical_emit_message(false, 'outbox-heartbeat', '')"),
    ("verifier", "library", INSERT),
    ("verifier", "library", f"delete from {TABLE} where id = gen_random_uuid()"),
    ("verifier", "library", f"select aggregate_id, tenant, count(*) from {TABLE} group by 1, 2"),
    ("verifier", "library", "select slot_name, confirmed_flush_lsn from pg_replication_slots"),
    ("verifier", "library", "select sent_lsn from pg_stat_replication"),
    ("materializer", "warehouse", f"create table {NAME}.book (id text primary key)"),
    ("materializer", "warehouse", f"insert into {NAME}.book values ('a')"),
    ("materializer", "warehouse", f"drop table {NAME}.book"),
]
FORBIDDEN = [
    ("connector", "library", INSERT),
    ("connector", "library", f"update {TABLE} set event_type = 'y'"),
    ("connector", "library", f"delete from {TABLE}"),
    ("connector", "library", f"truncate {TABLE}"),
    ("connector", "library", "create table public.mine (a int)"),
    ("connector", "library", f"alter publication {NAME}_p set (publish = 'delete')"),
    ("verifier", "library", f"select payload from {TABLE}"),
    ("verifier", "library", f"select * from {TABLE}"),
    ("verifier", "library", f"update {TABLE} set event_type = 'y'"),
    ("verifier", "library", f"delete from {TABLE} where payload is null"),
    ("verifier", "library", "select pg_create_logical_replication_slot('x', 'pgoutput')"),
    ("verifier", "library", f"select pg_drop_replication_slot('{NAME}_s')"),
    ("verifier", "library", "create table public.mine (a int)"),
    ("materializer", "library", f"select * from {TABLE}"),
    ("materializer", "library", f"select aggregate_id from {TABLE}"),
    ("materializer", "library", INSERT),
    ("materializer", "library", "select pg_create_logical_replication_slot('x', 'pgoutput')"),
    ("materializer", "warehouse", "create schema mine"),
    ("owner", "library", "create role mine"),
]


@pytest.mark.parametrize(("role", "database", "statement"), ALLOWED, ids=[f"{row[0]}: {row[2]}" for row in ALLOWED])
def test_each_role_has_the_privileges_it_needs(
    as_role: Callable[..., Any], role: str, database: str, statement: str
) -> None:
    with as_role(role, database) as connection:
        connection.execute(statement.encode())


@pytest.mark.parametrize(("role", "database", "statement"), FORBIDDEN, ids=[f"{row[0]}: {row[2]}" for row in FORBIDDEN])
def test_each_role_lacks_all_other_privileges(
    as_role: Callable[..., Any], role: str, database: str, statement: str
) -> None:
    with as_role(role, database) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute(statement.encode())


def test_the_scripts_fail_in_another_database(
    scripts: dict[str, list[str]], as_role: object, state: StackState
) -> None:
    """The first statement fails, so psql with ON_ERROR_STOP runs no other one."""
    del as_role
    for database, other in (("library", "warehouse"), ("warehouse", "library")):
        dsn = state.dsn(state.admin_user, state.admin_password, other)
        with psycopg.connect(dsn) as connection, pytest.raises(psycopg.errors.RaiseException, match=database):
            connection.execute(scripts[database][0].encode())


def test_the_script_fails_if_the_publication_belongs_to_another_environment(
    scripts: dict[str, list[str]], as_role: object, source_dsn: str
) -> None:
    del as_role
    with psycopg.connect(source_dsn) as connection:
        mark = f"outbox-kit: pipeline {NAME}, environment {NAME}2, prefix {NAME}, slot {NAME}_s"
        connection.execute(f"comment on publication {NAME}_p is '{mark}'")
        connection.execute(scripts["library"][0].encode())
        with pytest.raises(psycopg.errors.RaiseException, match="another pipeline or environment"):
            connection.execute(scripts["library"][1].encode())
        connection.rollback()


def test_creates_a_failover_slot_where_supported(as_role: Callable[..., Any]) -> None:
    with as_role("verifier") as connection:
        row = connection.execute(
            "select plugin, to_jsonb(s) -> 'failover' from pg_replication_slots s where slot_name = %s", (f"{NAME}_s",)
        ).fetchone()
        assert row == ("pgoutput", True if connection.info.server_version >= 170000 else None)


def test_verifier_can_read_what_the_checks_need(as_role: object, project: Path) -> None:
    """The login of source.verifier has all privileges that outbox-kit needs to read the database."""
    del as_role
    path = project / "connectors" / f"{NAME}.yaml"
    pipeline, result = load_pipeline(path, NAME), load_environment(NAME, path)
    with client.connected(result.source, result.source.verifier) as connection:
        requests = connection.execute("select current_user as name").fetchone()
        assert requests == {"name": ROLES["verifier"]}
        actual = read_actual(connection, pipeline, result)
        assert recent_events(connection, pipeline.source, pipeline.aggregates, older_than=60) == []
    assert actual.slot is not None
    assert actual.publication is not None
    assert actual.role is not None
    assert actual.role["can_read"]
    assert actual.columns["tenant"] == "text"


def test_doctor_lists_every_missing_privilege_with_its_grant(
    outbox: Outbox, as_role: object, environment: str, source_dsn: str
) -> None:
    """The plan refuses the same privileges, before it fails at the first of them."""
    del as_role
    run = partial(outbox, pipeline=NAME, environment=environment)
    done = run("doctor", "--output", "json")
    assert done.code == 0, done.output
    assert [entry["system"].split()[0] for entry in json.loads(done.stdout)["systems"]] == [
        *("postgres", "postgres", "kafka", "registry", "connect")
    ]
    owner, connector, verifier = (
        sql.Identifier(ROLES[name]).as_string(None) for name in ("owner", "connector", "verifier")
    )
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        connection.execute("create table outbox_relay (outbox text primary key, source_epoch int)")
        connection.execute("create table outbox_backfill (pipeline text)")
        for revocation in (
            f"alter table {TABLE} owner to current_user",
            f"revoke select on {TABLE} from {connector}",
            f"revoke insert, select (tenant) on {TABLE} from {verifier}",
            f"revoke usage on schema {NAME}_shop from {owner}",
            f"revoke select on {NAME}_shop.item, {NAME}_shop.price from {owner}",
            f"revoke pg_read_all_stats from {owner}",
        ):
            connection.execute(revocation)
        done = run("doctor", "--output", "json")
        assert done.code == 1
        missing = json.loads(done.stdout)["missing"]
        grants = [
            f"grant pg_read_all_stats to {owner}",
            f'alter table "public"."{NAME}_event" owner to {owner}',
            f'grant select on "public"."{NAME}_event" to {connector}',
            f'grant select on "public"."outbox_relay" to {owner}',
            f'grant select, insert, update, delete on "public"."outbox_backfill" to {owner}',
            f'grant usage on schema "{NAME}_shop" to {owner}',
            f'grant select on "{NAME}_shop"."item" to {owner}',
            f'grant select on "{NAME}_shop"."price" to {owner}',
            f'grant insert, select ("tenant") on "public"."{NAME}_event" to {verifier}',
            f'grant select on "public"."outbox_relay" to {verifier}',
        ]
        assert sorted(item["statement"] for item in missing) == sorted(grants)
        refused = run("plan")
        assert refused.code == 1
        required = [item["privilege"] for item in missing if item["needed_by"] == "apply"]
        assert len(required) == 3
        assert all(privilege in refused.output for privilege in required)
        for item in missing:
            connection.execute(item["statement"])
        assert run("doctor").code == 0
        connection.execute("drop table outbox_relay, outbox_backfill")
