"""A pipeline file with an environment, and job files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from outbox_events.http_session import HttpEndpoint
from outbox_spark.jobs.model import DeltaTarget, MaterializeJob, Target

PROJECT = Path(__file__).resolve().parents[2]

ENVIRONMENT = """
name: testing
source:
  {host: db, database: d, admin: {user: u, password: "{{ env.ABSENT }}"}, connector: {user: c, password: p}}
kafka: {bootstrap_servers: "broker:9092", client: {security.protocol: SSL}}
registry: {url: "http://registry", username: ru, password: "{{ env.REGISTRY_PASSWORD }}"}
connect: {url: "http://connect"}
targets:
  warehouse:
    {kind: postgres, host: wh, port: 5433, database: w, user: m, password: "{{ env.TARGET_PASSWORD }}", schema: library}
  lake: {kind: delta, path: build/lake}
"""

CATALOG_SECRETS = {
    "header.X-Api-Key": "k4fka",
    "header.Authorization": "Bearer k4fka",
    "header.X-Session": "k4fka",
    "credential": "id:k4fka",
    "token": "k4fka",
    "s3.access-key-id": "k4fka",
    "s3.secret-access-key": "k4fka",
    "s3.session-token": "k4fka",
    "s3.sse.key": "k4fka",
    "adls.connection-string.me": "AccountKey=k4fka",
    "adls.sas-token.me": "k4fka",
    "adls.auth.shared-key.account.key": "k4fka",
    "gcs.decryption-key": "k4fka",
    "hadoop.fs.azure.account.key.me": "k4fka",
    "jdbc.password": "k4fka",
    "uri": "jdbc:postgresql://db/catalog?user=me&password=k4fka",
    "warehouse": "s3a://me:k4fka@bucket/x",
}
"""Settings of Iceberg catalogs and object stores whose names or values contain secrets."""


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a pipeline file with an environment `testing`, and return its path."""
    shutil.copytree(PROJECT / "schemas", tmp_path / "schemas")
    (tmp_path / "connectors/environments").mkdir(parents=True)
    shutil.copy(PROJECT / "connectors/library.yaml", tmp_path / "connectors")
    (tmp_path / "connectors/environments/testing.yaml").write_text(ENVIRONMENT)
    monkeypatch.setenv("REGISTRY_PASSWORD", "r3gistry")
    monkeypatch.setenv("TARGET_PASSWORD", "t4rget")
    return tmp_path / "connectors/library.yaml"


def job(target: Target | None = None, **changes: Any) -> MaterializeJob:  # noqa: ANN401 - any field
    created = MaterializeJob(
        aggregate="book",
        topic="library.book",
        table="book",
        kafka={"bootstrap.servers": "b:9092"},
        registry=HttpEndpoint("http://r", "u", "p"),
        target_name="lake",
        target=target or DeltaTarget("/lake"),
    )
    return structs.replace(created, **changes)


def write_job_file(tmp_path: Path, data: Any) -> Path:  # noqa: ANN401 - JSON
    path = tmp_path / "job.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path
