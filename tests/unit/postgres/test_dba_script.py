"""SQL for a DBA: content, order, and equality with the statements of `apply`."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
from psycopg import sql

from outbox_events.errors import ConfigurationError
from outbox_kit.pipeline import Backfill, Environment, Login, Pipeline, PostgresTarget
from outbox_kit.postgres import apply as postgres_apply
from outbox_kit.postgres import client, state
from outbox_kit.postgres.dba_script import script, tables_with_schema, target_script
from outbox_kit.results import silent

TARGET = {"kind": "postgres", "host": "wh", "database": "warehouse", "user": "filler", "password": "target-secret"}


def with_target(environment: Environment, **changes: object) -> Environment:
    target = PostgresTarget.model_validate({**TARGET, "schema": "library", **changes})
    return environment.model_copy(update={"targets": {"warehouse": target}})


def with_verifier(environment: Environment) -> Environment:
    login = Login.model_validate({"user": "checker", "password": "checker-secret"})
    source = environment.source.model_copy(update={"verifier": login})
    return environment.model_copy(update={"source": source})


def with_field(library: Pipeline, field: str) -> Pipeline:
    book = library.aggregates["book"].model_copy(update={"partition_field": field})
    return library.model_copy(update={"aggregates": {**library.aggregates, "book": book}})


def statements_of(text: str) -> list[str]:
    """Return the paragraphs without comments."""
    paragraphs = [
        re.sub(r"^--.*\n?", "", paragraph, flags=re.MULTILINE).strip() for paragraph in text.strip().split("\n\n")
    ]
    return [paragraph for paragraph in paragraphs if paragraph]


def test_creates_objects_in_the_safe_order(library: Pipeline, environment: Environment) -> None:
    actual = script(library, environment)
    positions = [
        actual.index(message) for message in ("create table", "create publication", "pg_create_logical_replication")
    ]
    assert positions == sorted(positions)


class _Recorder:
    """Connection that records statements."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.statements: list[str] = []

    def execute(self, statement: Any, *_: object) -> _Recorder:  # noqa: ANN401 - text or composed
        self.statements.append(statement if isinstance(statement, str) else statement.as_string(None))
        return self

    def fetchall(self) -> list[dict[str, int]]:
        return [{"version": self.version}]

    def fetchone(self) -> dict[str, None]:
        return {"comment": None}

    def transaction(self) -> _Recorder:
        return self

    def __enter__(self) -> _Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(("version", "failover"), [(140000, False), (160009, False), (170000, True), (180001, True)])
def test_uses_the_statements_of_apply(
    library: Pipeline, environment: Environment, version: int, failover: bool
) -> None:
    empty = state.ActualDatabase(version, "library", "logical", "1", 1, False, 0, {}, None, None, None)
    connection: Any = _Recorder(version)
    changes = state.diff(library, environment, empty)
    postgres_apply.apply(connection, library, environment, changes, silent, None)
    queries = (client.SERVER, client.PUBLICATION)
    created = [text for text in connection.statements if text not in queries and not text.startswith("set local")]
    assert [text.split()[0] for text in created] == [
        "create",
        "create",
        "grant",
        "grant",
        "create",
        "comment",
        "select",
    ]
    actual = script(library, environment)
    for text in created:
        assert text.replace("create table", "create table if not exists") in actual
    assert created[-1].endswith("false, false, true)") is failover


def test_creates_table_and_constraint_of_the_contract(library: Pipeline, environment: Environment) -> None:
    source = library.source.model_copy(
        update={"table": 'o.Out"Box', "columns": library.source.columns.model_copy(update={"aggregate_id": "Key"})}
    )
    actual = script(library.model_copy(update={"source": source}), environment)
    assert 'create schema if not exists "o";' in actual
    assert 'create table if not exists "o"."Out""Box" (' in actual
    assert '"Key" text not null check ("Key" <> \'\'),' in actual


@pytest.mark.parametrize(("field", "added"), [("tenant", 1), ("aggregate_type", 0)])
def test_creates_a_column_for_a_partition_field(
    library: Pipeline, environment: Environment, field: str, added: int
) -> None:
    actual = script(with_field(library, field), with_verifier(environment))
    table = next(text for text in statements_of(actual) if text.startswith("create table"))
    assert table.count(f'  "{field}" text)') == added
    assert table.count(f'"{field}"') == 1
    assert re.search(rf'select \([^)]*"{field}"[^)]*\)', actual), "the verifier samples it"


def test_grants_each_role_only_required_privileges(library: Pipeline, environment: Environment) -> None:
    grants: dict[str, list[str]] = {}
    environment = with_target(with_verifier(environment))
    for text in statements_of(script(library, environment) + "\n\n" + target_script(environment, "warehouse")):
        match = re.fullmatch(r'(?:grant|alter role) (.*?)(?: to)? "?(\w+)"?(?: with ([\w ]+))?;', text)
        if match and text.startswith("grant"):
            grants.setdefault(match[2], []).append(match[1])
    table = 'on "public"."outbox_event"'
    assert grants == {
        "owner": [
            'connect on database "library"',
            "pg_read_all_stats",
            'create on database "library"',
            'usage on schema "public"',
            'create on schema "public"',
            'usage on schema "library"',
            'select, update on "library"."author"',
            'select, update on "library"."book"',
        ],
        "reader": ['connect on database "library"', 'usage on schema "public"', f"select {table}"],
        "checker": [
            'connect on database "library"',
            "pg_read_all_stats",
            'usage on schema "public"',
            'insert, delete, select ("id", "aggregate_type", "aggregate_id", "event_type", "created_at", "seq", '
            f'"ctid") {table}',
        ],
        "filler": ['connect on database "warehouse"', 'usage, create on schema "library"'],
    }


def test_grants_replication_to_the_connector_role(library: Pipeline, environment: Environment) -> None:
    environment = with_target(with_verifier(environment))
    actual = script(library, environment) + target_script(environment, "warehouse")
    assert dict(re.findall(r'^alter role "(\w+)" with (.*);$', actual, flags=re.MULTILINE)) == {
        "owner": "login replication",
        "reader": "login replication",
        "checker": "login",
        "filler": "login",
    }


def test_script_contains_no_password(library: Pipeline, environment: Environment) -> None:
    environment = with_target(with_verifier(environment))
    actual = script(library, environment) + target_script(environment, "warehouse")
    for secret in ("owner-secret", "target-secret", "checker-secret", "${file:"):
        assert secret not in actual
    assert "\\password ROLE" in actual
    assert not re.search(r"password\s+'", actual, flags=re.IGNORECASE)


def test_reports_a_missing_verifier(library: Pipeline, environment: Environment) -> None:
    assert "-- No verifier: source.verifier is not set, so `outbox verify` logs in as the owner." in script(
        library, environment
    )
    assert "No verifier" not in script(library, with_verifier(environment))


def test_a_script_is_for_one_database(library: Pipeline, environment: Environment) -> None:
    environment = with_target(environment, database="it's")
    source, target = script(library, environment), target_script(environment, "warehouse")
    assert "filler" not in source
    assert '"outbox_event"' not in target
    assert """--dbname 'it'"'"'s' --file""" in target
    with pytest.raises(ConfigurationError, match="no PostgreSQL target 'lake'"):
        target_script(environment, "lake")


def test_checks_the_database_and_wal_level_before_it_changes_anything(
    library: Pipeline, environment: Environment
) -> None:
    checks = statements_of(script(library, environment))[:3]
    assert all("raise exception" in statement for statement in checks)
    assert "current_setting('wal_level')" in checks[-1]


@pytest.mark.parametrize(
    ("query", "tables"),
    [
        ("select 1 from Shop.Item i join shop.price p on p.id = i.id", {"shop.item", "shop.price"}),
        ('select 1 from shop."Item" left join "Shop" . price', {"shop.Item", "Shop.price"}),
        ("select i.from_date from item i, lateral (select 1 from shop.part) x", {"shop.part"}),
        ("select 1 from shop.items(1) -- from shop.a\n /* join shop.b */", set()),
    ],
)
def test_finds_the_tables_of_a_query(query: str, tables: set[str]) -> None:
    assert tables_with_schema(query) == tables


def test_grants_row_locks_for_a_backfill(library: Pipeline, environment: Environment) -> None:
    query = "select 1 from shop.book join stock.price using (id)"
    backfill = Backfill.model_validate({"table": "shop.book", "key": "id", "query": query})
    book = library.aggregates["book"].model_copy(update={"backfill": backfill})
    changed = library.model_copy(update={"aggregates": {**library.aggregates, "book": book}})
    actual = script(changed, environment)
    assert 'grant usage on schema "shop" to "owner";' in actual
    assert 'grant select, update on "shop"."book" to "owner";' in actual
    assert 'grant usage on schema "stock" to "owner";' in actual
    assert 'grant select on "stock"."price" to "owner";' in actual
    assert "shop" not in script(library, environment)


@pytest.mark.parametrize("name", ["a\nb", "a\n\\! id", "a\r\\! id"])
def test_a_comment_is_one_line(environment: Environment, name: str) -> None:
    target = with_target(environment).targets["warehouse"]
    actual = target_script(environment.model_copy(update={"targets": {name: target}}), name)
    assert [line for line in actual.splitlines() if line.startswith(("b", "\\!"))] == []


@pytest.mark.parametrize("name", ["Shop", "a b", "$role$", "$_role$", 'x"; drop table t; --', "it's"])
def test_quotes_names(library: Pipeline, environment: Environment, name: str) -> None:
    admin = environment.source.admin.model_copy(update={"user": name})
    source = environment.source.model_copy(update={"database": name, "admin": admin})
    environment = with_target(environment.model_copy(update={"source": source}), database=name, user=name)
    actual = f"{script(library, environment)}\n{target_script(environment, 'warehouse')}"
    identifier = sql.Identifier(name).as_string(None)
    assert f"grant connect on database {identifier} to {identifier};" in actual
    assert f"--dbname {shlex.quote(name)} --file" in actual
    blocks = re.findall(r"^do (\$\w+\$) (begin.*?end) \1;$", actual, flags=re.MULTILINE | re.DOTALL)
    assert sum(body.count(f"create role {identifier};") for _, body in blocks) == 2
    assert [body for tag, body in blocks if tag in body] == []


def test_messages_need_no_table_privileges(library: Pipeline, environment: Environment) -> None:
    source = library.source.model_copy(update={"message_prefix": "outbox"})
    actual = script(library.model_copy(update={"source": source}), with_verifier(environment))
    assert "outbox_event" not in actual
    assert "grant insert" not in actual
    assert "select, update" not in actual, "there is no backfill"
    assert "-- No table" in actual
    assert 'create publication "library_outbox";' in actual
    assert "Its canary is a message" in actual


def test_documents_the_scope_of_the_verifier_delete(library: Pipeline, environment: Environment) -> None:
    assert "can delete any row" in script(library, with_verifier(environment))
