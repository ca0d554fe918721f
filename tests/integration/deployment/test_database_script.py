"""The SQL script for a DBA, run as printed. `apply` then makes no changes, and each role has only its privileges."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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


def paragraphs(text: str) -> Iterator[tuple[str, str]]:
    """Yield (database, statement) of a psql script."""
    database = "library"
    for paragraph in re.sub(r"^--.*\n", "", text, flags=re.MULTILINE).strip().split("\n\n"):
        match = re.fullmatch(r"\\connect -reuse-previous=on '.* dbname=(\w+)'", paragraph.strip())
        if match:
            database = match[1]
        elif paragraph.strip():
            yield database, paragraph


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
def script(outbox: Outbox, environment: str, make_pipeline: Callable[..., Path]) -> str:
    """Return the SQL that `outbox render` prints."""
    aggregates = {"book": {"schema": "schemas/book.avsc", "partition_field": "tenant"}}
    make_pipeline(NAME, aggregates=aggregates)
    done = outbox("render", "--format", "sql", pipeline=NAME, environment=environment)
    assert done.code == 0, done.output
    return done.stdout


@pytest.fixture(scope="module")
def as_role(script: str, state: StackState) -> Callable[..., Any]:
    """Run the script as a superuser, then log in as one of the script's roles."""
    superuser = {name: state.dsn(state.admin_user, state.admin_password, name) for name in ("library", "warehouse")}
    with psycopg.connect(superuser["library"]) as connection:
        assert connection.execute("select rolsuper from pg_roles where rolname = current_user").fetchone() == (True,)
    for database, statement in paragraphs(script):
        with psycopg.connect(superuser[database], autocommit=True) as connection:
            connection.execute(statement.encode())
    with psycopg.connect(superuser["library"], autocommit=True) as connection:
        # An earlier module may have run the relay as another role. The relay creates its tables when it starts.
        connection.execute("drop table if exists outbox_relay, outbox_relay_batch")
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
