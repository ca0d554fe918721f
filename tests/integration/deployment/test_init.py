"""`outbox init` for a database with unusual names, keys and types: the files deploy as written."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.rows import dict_row
from tests.conftest import REPOSITORY
from tests.integration.support import CommandResult, Outbox, invoke, live_keys, temporary_database

from outbox_kit.connect import lifecycle
from outbox_kit.deployment import open_deployment
from outbox_kit.init.project_files import TEST_DSN
from outbox_kit.pipeline.loading import load_pipeline
from outbox_kit.postgres import client as postgres_client
from outbox_kit.postgres import ddl

SCHEMA = Path(__file__).with_name("web_shop.sql")
AGGREGATES = {
    "customer": "web.Customer,web.address,web.customer_note",
    "category": "web.category",
    "orders": "web.orders,web.order_line,web.line_discount",
    "product": "web.product,web.product_category",
    "stock": "web.stock",
}
OPTIONS = [part for name, tables in AGGREGATES.items() for part in ("--aggregate", f"{name}={tables}")]
OUTBOX_TABLE = "public.outbox_event"
LATEST_STATES = """
    select distinct on (aggregate_id) aggregate_id, payload from public.outbox_event
    where aggregate_type = 'orders' order by aggregate_id, seq desc"""


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
    for name, tables in AGGREGATES.items():
        assert f"--aggregate {name}={tables}" in command
    password = psycopg.conninfo.conninfo_to_dict(database)["password"]
    assert str(password) not in done.output


def test_the_generated_test_passes_and_finds_a_state_that_does_not_fit(folder: Path, database: str) -> None:
    successful("init", "--dsn", database, "--name", "web", *OPTIONS, "--create-views")
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
    environ = {"PYTHONPATH": str(REPOSITORY / "scripts"), TEST_DSN: database, "PATH": ""}
    done = subprocess.run(run, cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=120)
    assert "5 passed" in done.stdout, done.stdout
    schema = json.loads((folder / "schemas" / "stock.avsc").read_text())
    schema["fields"] = schema["fields"][:-1]
    (folder / "schemas" / "stock.avsc").write_text(json.dumps(schema))
    done = subprocess.run(run, cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=120)
    assert "1 failed, 4 passed" in done.stdout, done.stdout


def test_reports_a_database_that_it_cannot_read(folder: Path, database: str) -> None:
    for arguments, message in (
        ((), "the embedded stack is not running"),
        (("--dsn", "postgresql://["), "not a valid PostgreSQL connection string"),
        (("--dsn", f"{database} port=1"), "cannot connect to PostgreSQL"),
        (("--dsn", database, "--aggregate", "a=web.missing"), "no table 'web.missing'"),
        (("--dsn", database, *OPTIONS, "--name", "Web Shop"), "--name 'Web Shop' is not valid"),
        (("--dsn", database, "--add", "stock=web.stock"), "no pipeline file"),
    ):
        done = invoke(["init", *arguments])
        assert done.code != 0
        assert message in done.stderr
    assert list(folder.iterdir()) == []


def test_the_project_deploys_and_every_state_is_on_its_topic(
    project: Path, outbox_here: Outbox, source_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        connection.execute(SCHEMA.read_bytes())
    first = [option for option in OPTIONS if not option.startswith("stock=")][:-1]
    successful("init", "--name", "web", *first, "--create-views")
    pipeline = project / "connectors" / "web.yaml"
    successful("-p", str(pipeline), "init", "--add", f"stock={AGGREGATES['stock']}", "--create-views")
    # The other pipelines of the test run use the default table.
    pipeline.write_text(pipeline.read_text().replace(OUTBOX_TABLE, "public.web_event"))
    with open_deployment(pipeline, "local") as deployment:
        assert list(deployment.pipeline.aggregates) == list(AGGREGATES)
        try:
            for command in (["lint", "--strict"], ["doctor"], ["apply", "--yes"], ["backfill"], ["verify", "--states"]):
                done = outbox_here(*command, pipeline="web")
                assert done.code == 0, done.output
            with postgres_client.connected(deployment.environment.source) as connection:
                rows = connection.execute("select count(*) as n from web.orders").fetchall()[0]["n"]
            assert len(live_keys(deployment, "web.orders", 4)) == rows
        finally:
            lifecycle.remove(deployment.connect, "web-outbox")
            with postgres_client.connected(deployment.environment.source) as connection:
                postgres_client.drop_slot(connection, "web_outbox")
    shutil.rmtree(project / "sql")


def test_triggers_send_the_latest_state_of_concurrent_transactions(folder: Path, database: str) -> None:
    successful("init", "--dsn", database, "--name", "web", *OPTIONS, "--create-views", "--triggers")
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(ddl.create_table(load_pipeline(folder / "connectors" / "web.yaml")))
        connection.execute((folder / "sql" / "orders_triggers.sql").read_bytes())
    workers = [threading.Thread(target=change_orders, args=(database, seed)) for seed in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    with psycopg.connect(database, row_factory=dict_row) as connection:
        sent = {row["aggregate_id"]: row["payload"] for row in connection.execute(LATEST_STATES)}
        expected = {str(row["id"]): row["payload"] for row in connection.execute("select * from web.orders_state")}
        changed = {str(row["id"]) for row in connection.execute("select id from web.orders where total > 1000")}
        with pytest.raises(psycopg.errors.RaiseException, match="truncate of web.line_discount"):
            connection.execute("truncate web.line_discount")
    assert sent == {key: expected.get(key) for key in sent}
    assert changed <= sent.keys()
    assert None in sent.values(), "orders were deleted"


def change_orders(dsn: str, seed: int) -> None:
    """Change, move and delete rows of a few orders in small transactions, and roll some of them back."""
    choice = random.Random(seed)
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
            try:
                with connection.transaction() as transaction:
                    for statement in choice.sample(statements, 2):
                        connection.execute(statement, values)
                    if choice.random() < 0.1:
                        raise psycopg.Rollback(transaction)
            except (psycopg.errors.DeadlockDetected, psycopg.errors.IntegrityError):
                continue  # a deadlock, or a discount of an order without this line
