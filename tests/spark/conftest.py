"""One Spark session and one PostgreSQL server for all Spark tests; tables in either, as one fixture."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from postgres_server import running_postgres
from pyspark.sql import SparkSession
from tables import Target, job_for

from outbox_spark.jobs.model import DeltaTarget, IcebergTarget, PostgresTarget
from outbox_spark.session.spark_session import start_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    # Few rows and much code that runs once: compiling it well takes longer than running it. (The first
    # compiler alone gets a small code cache, and stops when that is full.)
    os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m")
    session = start_session("outbox-tests")
    # Cold code on few rows: more tasks only cost.
    session.conf.set("spark.sql.shuffle.partitions", "2")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def postgres() -> Iterator[psycopg.conninfo.ConninfoDict]:
    # Not in pytest's folder: the unprivileged user of the server must be able to enter it.
    with tempfile.TemporaryDirectory(prefix="outbox-postgres-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        with running_postgres(Path(folder)) as address:
            yield address


@pytest.fixture
def postgres_target(
    spark: SparkSession, postgres: psycopg.conninfo.ConninfoDict, request: pytest.FixtureRequest
) -> Target:
    target = PostgresTarget(
        host=str(postgres["host"]),
        port=int(str(postgres["port"])),
        database=str(postgres["dbname"]),
        user=str(postgres["user"]),
        password=str(postgres["password"]),
        schema=f"t_{abs(hash(request.node.nodeid)):x}",
    )
    return Target(spark, job_for(target), postgres)


@pytest.fixture
def delta_target(spark: SparkSession, tmp_path: Path) -> Target:
    return Target(spark, job_for(DeltaTarget(str(tmp_path / "lake"))))


@pytest.fixture
def iceberg_target(spark: SparkSession, warehouse: Path, request: pytest.FixtureRequest) -> Target:
    catalog = {"type": "hadoop", "warehouse": str(warehouse)}
    return Target(spark, job_for(IcebergTarget(f"t_{abs(hash(request.node.nodeid)):x}", catalog)))


@pytest.fixture(scope="session")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One catalog for all tests: each has its own namespace."""
    return tmp_path_factory.mktemp("warehouse")


@pytest.fixture(params=["postgres", "delta", "iceberg"])
def target(request: pytest.FixtureRequest) -> Target:
    """Each target; tests with this fixture hold for all of them."""
    fixture: Target = request.getfixturevalue(f"{request.param}_target")
    return fixture


# A run of a lake table takes seconds: tests of every target run on all three, on two, or on PostgreSQL alone.
# `make test-full` runs the rest.
_EVERYWHERE = frozenset({"postgres", "delta", "iceberg"})
_TARGETS = {
    "test_materialize.py": _EVERYWHERE,
    "test_commit.py": frozenset({"postgres", "delta"}),
}
_ELSEWHERE = frozenset({"postgres"})


@pytest.hookimpl(tryfirst=True)  # before marks are evaluated
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """PySpark leaves the sockets that results come through to the garbage collector."""
    for item in items:
        if Path(__file__).parent not in item.path.parents:
            continue
        item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))
        parameters = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        target = str(parameters.get("target"))
        if target in _EVERYWHERE - _TARGETS.get(item.path.name, _ELSEWHERE):
            item.add_marker(pytest.mark.long)
