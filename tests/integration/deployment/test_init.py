"""`outbox init` for a database with unusual names, keys and types: the files deploy as written."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row
from tests.conftest import REPOSITORY
from tests.integration.support import CommandResult, invoke, live_keys, temporary_database

from outbox_events.waiting import Observation, wait_for
from outbox_kit.cli.commands import init as init_command
from outbox_kit.connect import lifecycle
from outbox_kit.deployment import open_deployment
from outbox_kit.init.project_files import TEST_DSN
from outbox_kit.pipeline.loading import load_pipeline
from outbox_kit.postgres import client as postgres_client
from outbox_kit.postgres import ddl
from outbox_kit.stack import Stack

SCHEMA = Path(__file__).with_name("web_shop.sql")
AGGREGATES = {
    "customer": "web.Customer,web.address,web.customer_note",
    "category": "web.category",
    "orders": "web.orders,web.order_line,web.line_discount",
    "product": "web.product,web.product_category",
    "stock": "web.stock",
    "tree": "web.tree,web.branch,web.leaf",
}
OPTIONS = [part for name, tables in AGGREGATES.items() for part in ("--aggregate", f"{name}={tables}")]
OUTBOX_TABLE = "public.outbox_event"
LATEST_STATES = """
    select distinct on (aggregate_id) aggregate_id, payload from public.outbox_event
    where aggregate_type = %s order by aggregate_id, seq desc"""


@pytest.fixture(scope="module")
def database(source_dsn: str) -> Iterator[str]:
    """DSN of a database with the tables of SCHEMA."""
    with temporary_database(source_dsn, "web_shop") as dsn:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(SCHEMA.read_bytes())
        yield dsn


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which is the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def successful(*arguments: str) -> CommandResult:
    done = invoke([*arguments])
    assert done.code == 0, done.output
    return done


def test_proposes_aggregates_and_writes_nothing(folder: Path, database: str) -> None:
    done = successful("init", "--dsn", database)
    assert list(folder.iterdir()) == []
    command = next(line for line in done.stdout.splitlines() if line.startswith("outbox init "))
    proposed = {**AGGREGATES, "tree": "web.tree", "branch": "web.branch,web.leaf"}
    for name, tables in proposed.items():
        assert f"--aggregate {name}={tables}" in command
    assert str(conninfo_to_dict(database)["password"]) not in done.output
    secret = successful("init", "--dsn", f"{database} options='-c app.token=SECRET'")
    assert "SECRET" not in secret.output


def test_the_generated_test_passes_and_finds_a_state_that_does_not_fit(folder: Path, database: str) -> None:
    successful("init", "--dsn", database, "--name", "web", *OPTIONS, "--create-views")
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
    environ = {"PYTHONPATH": str(REPOSITORY / "scripts"), TEST_DSN: database, "PATH": ""}
    done = subprocess.run(run, cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=120)
    assert "6 passed" in done.stdout, done.stdout
    schema = json.loads((folder / "schemas" / "stock.avsc").read_text())
    schema["fields"] = schema["fields"][:-1]
    (folder / "schemas" / "stock.avsc").write_text(json.dumps(schema))
    done = subprocess.run(run, cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=120)
    assert "1 failed, 5 passed" in done.stdout, done.stdout


def test_reports_a_database_that_it_cannot_read(folder: Path, database: str) -> None:
    for arguments, message in (
        ((), "the embedded stack is not running"),
        (("--dsn", "postgresql://["), "not a valid PostgreSQL connection string"),
        (("--dsn", f"{database} port=1"), "cannot connect to PostgreSQL"),
        (("--dsn", database, "--aggregate", "a=web.missing"), "no table 'web.missing'"),
        (("--dsn", database, *OPTIONS, "--name", "Web Shop"), "--name 'Web Shop' is not valid"),
        (("--dsn", database, "--add", "stock=web.stock"), "no pipeline file"),
        (("--dsn", database, "--create-views"), "requires --aggregate or --add"),
        (("--dsn", "postgresql://u:pa@SECRET@127.0.0.1/db"), "the host contains an @"),
    ):
        done = invoke(["init", *arguments])
        assert done.code in (1, 2)
        assert message in done.stderr
        assert "SECRET" not in done.output
    assert list(folder.iterdir()) == []


def test_the_project_deploys_and_every_state_is_on_its_topic(
    folder: Path, project: Path, source_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "build").symlink_to(project / "build")  # the stack of the test run
    monkeypatch.setattr(init_command, "Stack", lambda _: Stack(project))
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        connection.execute(SCHEMA.read_bytes())
    pipeline = folder / "connectors" / "web.yaml"
    successful("init", "--name", "web", *OPTIONS[:-2], "--create-views")
    successful("init", "--add", OPTIONS[-1], "--create-views")
    # The other pipelines of the test run use the default table.
    pipeline.write_text(pipeline.read_text().replace(OUTBOX_TABLE, "public.web_event"))
    with open_deployment(pipeline, "local") as deployment:
        assert list(deployment.pipeline.aggregates) == list(AGGREGATES)
        try:
            for command in (["lint", "--strict"], ["doctor"], ["apply", "--yes"], ["backfill"], ["verify", "--states"]):
                successful(*command)
            again = successful("init", "--name", "web", *OPTIONS).stdout
            assert again.index("outbox apply") < again.index("psql") < again.index("outbox backfill --restart customer")
            with postgres_client.connected(deployment.environment.source) as connection:
                rows = connection.execute("select count(*) as n from web.orders").fetchall()[0]["n"]
            assert len(live_keys(deployment, "web.orders", 4)) == rows
        finally:
            lifecycle.remove(deployment.connect, "web-outbox")
            with postgres_client.connected(deployment.environment.source) as connection:
                postgres_client.drop_slot(connection, "web_outbox")


@pytest.fixture
def triggers(folder: Path, database: str) -> str:
    """Return the DSN of the database, in which the triggers of two aggregates send to an empty outbox table."""
    successful("init", "--dsn", database, "--name", "web", *OPTIONS, "--create-views", "--triggers")
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("drop table if exists public.outbox_event")
        connection.execute(ddl.create_table(load_pipeline(folder / "connectors" / "web.yaml")))
        for name in ("orders", "tree"):
            connection.execute((folder / "sql" / f"{name}_triggers.sql").read_bytes())
    return database


def latest_states(dsn: str, name: str) -> tuple[dict[str, object], dict[str, object]]:
    """Return the states of the newest outbox rows, and the expected states of the same aggregates, by aggregate_id."""
    with psycopg.connect(dsn, row_factory=dict_row) as connection:
        sent = {row["aggregate_id"]: row["payload"] for row in connection.execute(LATEST_STATES, (name,))}
        states = {str(row["id"]): row["payload"] for row in connection.execute(f"select * from web.{name}_state")}
    return sent, {key: states.get(key) for key in sent}


def test_triggers_send_the_latest_state_of_concurrent_transactions(triggers: str) -> None:
    touched: set[int] = set()
    run_together(*(partial(change_orders, triggers, seed, touched) for seed in range(4)))
    sent, expected = latest_states(triggers, "orders")
    assert sent == expected
    assert {str(key) for key in touched} <= sent.keys()
    assert None in sent.values(), "orders were deleted"
    with psycopg.connect(triggers) as connection, pytest.raises(psycopg.errors.RaiseException, match="truncate of web"):
        connection.execute("truncate web.line_discount")


def test_triggers_find_the_aggregate_of_a_row_that_another_transaction_moves(triggers: str) -> None:
    with psycopg.connect(triggers) as mover, psycopg.connect(triggers) as writer:
        mover.execute("update web.branch set tree_code = 'T2' where id = 20")
        mover.execute("set constraints all immediate")  # sends both trees, and keeps their locks
        writer.execute("update web.leaf set value = 4711 where id = 19")  # a part of branch 20
        commit = threading.Thread(target=writer.commit)
        commit.start()
        wait_for("the writer to wait for a lock", lambda: waiting_sessions(triggers), seconds=30)
        mover.commit()
        commit.join()
    sent, expected = latest_states(triggers, "tree")
    assert sent == expected
    assert "4711" in json.dumps(sent["2"])


def run_together(*actions: Callable[[], object]) -> None:
    """Run each action in a thread of its own, and wait until all have ended."""
    threads = [threading.Thread(target=action) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def waiting_sessions(dsn: str) -> Observation[bool]:
    with psycopg.connect(dsn) as connection:
        (count,) = connection.execute(
            "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
        ).fetchone() or (0,)
    return Observation(count > 0 or None, f"{count} sessions wait")


def test_triggers_let_transactions_add_parts_to_the_same_aggregate(triggers: str) -> None:
    with psycopg.connect(triggers) as one, psycopg.connect(triggers) as other:
        one.execute("insert into web.branch values (101, 'T3', 1)")
        other.execute("insert into web.branch values (102, 'T3', 2)")
        run_together(one.commit, other.commit)
    sent, expected = latest_states(triggers, "tree")
    assert sent == expected
    state = sent["3"]
    assert isinstance(state, dict)
    assert {101, 102} < {branch["id"] for branch in state["branch"]}


def test_states_do_not_depend_on_settings_of_the_session(triggers: str) -> None:
    query = "select payload::text from web.tree_state where id = 4"
    with psycopg.connect(triggers) as connection:
        expected = connection.execute(query).fetchone()
        connection.execute("set timezone = 'Europe/Berlin'")
        connection.execute("set bytea_output = 'escape'")
        connection.execute("set datestyle = 'German'")
        assert connection.execute(query).fetchone() == expected


def test_does_not_replace_a_view_of_others(folder: Path, database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("create view web.mine_state as select 1 as one")
        done = invoke(["init", "--dsn", database, "--aggregate", "mine=web.stock", "--create-views"])
        assert done.code == 1
        assert "web.mine_state exists, and `outbox init` did not create it" in done.stderr
        assert connection.execute("select * from web.mine_state").fetchall() == [(1,)]
    assert (folder / "sql" / "mine_state.sql").exists()


def test_writes_nothing_if_a_type_has_the_name_of_a_view(folder: Path, database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("create type web.taken_state as enum ('a')")
    done = invoke(["init", "--dsn", database, "--aggregate", "taken=web.stock"])
    assert done.code == 1
    assert "the view web.taken_state cannot be created" in done.stderr
    assert list(folder.iterdir()) == []


def test_creates_the_view_that_the_user_has_edited(folder: Path, database: str) -> None:
    arguments = ["init", "--dsn", database, "--name", "web", "--aggregate", "edited=web.stock"]
    successful(*arguments)
    file = folder / "sql" / "edited_state.sql"
    file.write_text(file.read_text().replace('as "quantity"', 'as "amount"'))
    done = successful(*arguments, "--create-views")
    assert '-         t1."quantity" as "amount"' in done.stdout
    with psycopg.connect(database) as connection:
        row = connection.execute("select payload from web.edited_state limit 1").fetchone()
    assert row is not None
    assert "amount" in row[0]


def change_orders(dsn: str, seed: int, touched: set[int]) -> None:
    """Change, move and delete rows of a few orders in small transactions, and roll some of them back.

    Add the keys of the orders that were changed to `touched`.
    """
    choice = random.Random(seed)  # noqa: S311
    statements = (
        "update web.orders set total = 1000 + %(value)s where id = %(id)s",
        "update web.order_line set qty = %(value)s where order_id = %(id)s and line_no = 1",
        "insert into web.line_discount values (%(id)s, 1, %(value)s, 1) on conflict do nothing",
        "delete from web.line_discount where order_id = %(id)s",
        "update web.line_discount set order_id = %(other)s where order_id = %(id)s and line_no = 1",
        "delete from web.order_line where order_id = %(id)s and line_no = 3",
        "delete from web.orders where id = %(id)s and id %% 7 = 0",
    )
    with psycopg.connect(dsn) as connection:
        for number in range(60):
            values = {"id": choice.randrange(1, 30), "other": choice.randrange(1, 30), "value": number}
            is_rolled_back = choice.random() < 0.1
            try:
                with connection.transaction(force_rollback=is_rolled_back):
                    changed = [connection.execute(entry, values).rowcount for entry in choice.sample(statements, 2)]
                if any(changed) and not is_rolled_back:
                    touched.add(values["id"])
            except (psycopg.errors.DeadlockDetected, psycopg.errors.IntegrityError):
                continue  # a deadlock, or a discount of an order without this line
