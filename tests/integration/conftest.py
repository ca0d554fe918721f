"""The command line, pipelines and topics of the run's stack."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psycopg
import pytest
import requests
import yaml
from pyspark.sql import SparkSession
from tests.integration.support import CommandResult, Deploy, Outbox, invoke, run

from outbox_events.errors import OutboxError
from outbox_kit.connect import lifecycle as connect_lifecycle
from outbox_kit.deployment import Deployment, apply, open_deployment
from outbox_kit.postgres import client as postgres_client
from outbox_kit.postgres.replication_slot import read_slot, wait_inactive
from outbox_kit.results import silent
from outbox_kit.stack import Stack
from outbox_kit.stack.layout import Layout
from outbox_kit.stack.logs import tail
from outbox_kit.stack.services.java import FAST_START_OPTIONS
from outbox_spark.session.spark_session import start_session

# Modules that take the longest. They start first, so that no worker is left with one of them at the end.
LONGEST = ("test_verify.py", "test_secrets.py", "test_demo.py")
LOGGED_PROBLEM = re.compile(r"\b(?:WARN(?:ING)?|ERROR|FATAL)\b|^Caused by: ")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Move the tests of the longest modules to the front. Tests of other folders keep their places."""
    items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the warnings and errors in the servers' logs with a failed test, because the stack is deleted later."""
    report = yield
    project = getattr(item, "funcargs", {}).get("project")
    if report.failed and project is not None:
        for server in ("connect", "kafka", "postgres"):
            lines = [line[:300] for line in tail(Layout(project).log(server), 20_000) if LOGGED_PROBLEM.search(line)]
            if lines:
                report.sections.append(
                    (f"last problems in the log of {server}, also of earlier tests", "\n".join(lines[-40:]))
                )
    return report


@pytest.fixture(scope="session")
def outbox(project: Path, stack: Stack) -> Outbox:
    """Run the command `outbox` on the project of the test run, as an operator does."""
    del stack  # must be running

    def call(*arguments: str, pipeline: str = "library", environment: str = "local") -> CommandResult:
        command = [sys.executable, "-c", "from outbox_kit.cli import main; main()"]
        command += ["-p", str(project / "connectors" / f"{pipeline}.yaml"), "-e", environment, *arguments]
        return run(command, project)

    return call


@pytest.fixture(scope="session")
def outbox_here(project: Path, stack: Stack) -> Outbox:
    """Run `outbox` in this process, for modules with many commands, which would spend most time on starting Python."""
    del stack

    def run(*arguments: str, pipeline: str = "library", environment: str = "local") -> CommandResult:
        return invoke(["-p", str(project / "connectors" / f"{pipeline}.yaml"), "-e", environment, *arguments])

    return run


@pytest.fixture(scope="session")
def library(project: Path, stack: Stack) -> Iterator[Deployment]:
    """Apply the worked example, and yield its deployment."""
    del stack
    with open_deployment(project / "connectors" / "library.yaml", "local") as deployment:
        apply(deployment, silent)
        yield deployment


@pytest.fixture(autouse=True, scope="module")
def _drop_unused_slots(project: Path) -> Iterator[None]:
    """Drop the slots without a connector that a module leaves, because `verify` would report them in later modules."""
    yield
    state = Stack(project).state()
    if state is None or not state.services:
        return
    listed = requests.get(f"{state.connect}/connectors", params={"expand": "info"}, timeout=30).json()
    used = [connector["info"]["config"].get("slot.name", "debezium") for connector in listed.values()]
    with psycopg.connect(state.postgres) as connection:
        connection.execute(
            "select pg_drop_replication_slot(slot_name) from pg_replication_slots "
            "where database = current_database() and plugin = 'pgoutput' and not active and slot_name <> all(%s)",
            (used,),
        )


def remove_connector_and_slot(deployment: Deployment) -> None:
    """Remove the slot and its connectors after a test, because the stack has one worker and few slots."""
    slot = deployment.pipeline.source.slot
    with suppress(OutboxError):
        listed = deployment.connect.listed_connectors()
        renamed = {name for name, connector in listed.items() if connector.config.get("slot.name") == slot}
        for name in {deployment.pipeline.connector.name, *renamed}:
            connect_lifecycle.remove(deployment.connect, name)
        with postgres_client.connected(deployment.environment.source) as connection:
            wait_inactive(connection, slot)
            if read_slot(connection, slot) is not None:
                postgres_client.drop_slot(connection, slot)


@contextmanager
def deployer(make_pipeline: Callable[..., Path]) -> Iterator[Deploy]:
    """Yield a function that writes a pipeline file, opens it in an environment and, if `applied` is set, applies it."""
    with ExitStack() as stack:

        def run(name: str, *, environment: str = "local", applied: bool = True, **changes: object) -> Deployment:
            deployment = stack.enter_context(open_deployment(make_pipeline(name, **changes), environment))
            stack.callback(remove_connector_and_slot, deployment)
            if applied:
                apply(deployment, silent)
            return deployment

        yield run


@pytest.fixture
def deploy(make_pipeline: Callable[..., Path], stack: Stack) -> Iterator[Deploy]:
    """Deploy pipelines whose connections are closed after the test."""
    del stack  # must be running
    with deployer(make_pipeline) as run:
        yield run


@pytest.fixture(scope="module")
def deploy_once(make_pipeline: Callable[..., Path], stack: Stack) -> Iterator[Deploy]:
    """Deploy pipelines whose connections are closed after the module."""
    del stack  # must be running
    with deployer(make_pipeline) as run:
        yield run


@pytest.fixture(scope="session")
def make_pipeline(project: Path) -> Callable[..., Path]:
    """Write a pipeline file whose names (topics, slot, table) are unique, so that tests do not conflict.

    By default, no aggregate has a `backfill`, because other tests write to the business tables of the library.
    """

    def make(name: str, **changes: object) -> Path:
        data = yaml.safe_load((project / "connectors" / "library.yaml").read_text())
        for aggregate in data["aggregates"].values():
            del aggregate["backfill"]
        data |= {
            "name": name,
            "prefix": name,
            "source": {"table": f"public.{name}_event", "publication": f"{name}_p", "slot": f"{name}_s"},
            "connector": {"name": name, "template": "outbox-postgres"},
            "materializations": [],
            **changes,
        }
        path = project / "connectors" / f"{name}.yaml"
        path.write_text(yaml.safe_dump(data))
        return path

    return make


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """Yield a session with the jars of Kafka and outbox-kit. An active session is reused and not stopped."""
    os.environ.setdefault("SPARK_SUBMIT_OPTS", FAST_START_OPTIONS)
    running = SparkSession.getActiveSession()
    session = start_session("outbox-integration-tests")
    session.conf.set("spark.sql.shuffle.partitions", "2")
    yield session
    if running is None:
        session.stop()
