"""A Spark session and a PostgreSQL server for all Spark tests, and a table in each kind of target."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession
from tests.spark.postgres_server import running_postgres
from tests.spark.table_under_test import Target, job_for
from tests.variations import variations

from outbox_kit.stack.services.java import FAST_START_OPTIONS
from outbox_spark.jobs.model import DeltaTarget, IcebergTarget, PostgresTarget
from outbox_spark.session.spark_session import start_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    # With few rows, optimizing code takes longer than running it, so only the first compiler is used. By default,
    # the code cache would be too small for it.
    os.environ.setdefault("SPARK_SUBMIT_OPTS", FAST_START_OPTIONS)
    # Spark keeps the plans of a thousand queries, and hundreds of tests share the application.
    os.environ.setdefault("OUTBOX_SPARK_MEMORY", "2g")
    session = start_session("outbox-tests")
    # With few rows, more tasks only add overhead.
    session.conf.set("spark.sql.shuffle.partitions", "2")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def postgres() -> Iterator[psycopg.conninfo.ConninfoDict]:
    # Not in pytest's folder, because the server's unprivileged user must be able to enter the folder.
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
    """Return the folder of a catalog for all tests; each test has a separate namespace."""
    return tmp_path_factory.mktemp("warehouse")


# A run of a lake table takes seconds, so `make test` uses only PostgreSQL.
@pytest.fixture(params=variations(["postgres", "delta", "iceberg"]))
def target(request: pytest.FixtureRequest) -> Target:
    """Return a table in each kind of target in turn."""
    fixture: Target = request.getfixturevalue(f"{request.param}_target")
    return fixture


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ignore sockets that PySpark does not close."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))
