"""Jobs from the pipeline file and an environment file."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
from tests.spark.job_files import ENVIRONMENT, pipeline

from outbox_common.pipeline_files import UsageError
from outbox_events.errors import ConfigurationError
from outbox_events.http_session import HttpEndpoint
from outbox_kit.pipeline import environment
from outbox_spark.jobs.from_pipeline import load_jobs
from outbox_spark.jobs.model import (
    DeltaTarget,
    MaterializeJob,
    PostgresTarget,
    Target,
)

__all__ = ["pipeline"]  # the fixture


def test_creates_jobs_from_pipeline_and_environment(pipeline: Path) -> None:
    actual = load_jobs(pipeline, "testing", aggregates=["book"])
    warehouse, lake = sorted(actual, key=lambda job: job.target_name, reverse=True)
    assert warehouse == MaterializeJob(
        aggregate="book",
        topic="library.book",
        table="book",
        kafka={"bootstrap.servers": "broker:9092", "security.protocol": "SSL"},
        registry=HttpEndpoint("http://registry", "ru", "r3gistry"),
        target_name="warehouse",
        target=PostgresTarget("wh", 5433, "w", "m", "t4rget", "library"),
    )
    assert lake.target == DeltaTarget(str(pipeline.parent.parent / "build/lake"))
    assert not {"r3gistry", "t4rget"} & set(repr(actual).replace("'", " ").split())


def test_jobs_include_changes_of_environment_and_variables(pipeline: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise, a job would read topics whose prefix differs from the prefix of the connector's topics."""
    file = pipeline.parent / "environments/testing.yaml"
    file.write_text(f"{ENVIRONMENT}pipeline: {{prefix: eu}}\n")
    assert {job.topic for job in load_jobs(pipeline, "testing")} == {"eu.author", "eu.book"}
    monkeypatch.setenv("OUTBOX__PREFIX", "us")
    monkeypatch.setenv("OUTBOX__ENVIRONMENT__KAFKA__BOOTSTRAP_SERVERS", "other:9092")
    actual = load_jobs(pipeline, "testing")
    assert {job.topic for job in actual} == {"us.author", "us.book"}
    assert {job.kafka["bootstrap.servers"] for job in actual} == {"other:9092"}


def test_rejects_an_unknown_aggregate(pipeline: Path) -> None:
    with pytest.raises(UsageError, match="no aggregate or target reader") as caught:
        load_jobs(pipeline, "testing", aggregates=["reader"])
    assert "book -> lake" in caught.value.hint


def test_reports_a_target_missing_in_the_environment(pipeline: Path) -> None:
    file = pipeline.parent / "environments/testing.yaml"
    file.write_text("\n".join(line for line in ENVIRONMENT.splitlines() if "lake:" not in line))
    with pytest.raises(ConfigurationError, match=r"no target 'lake'; .*: warehouse"):
        load_jobs(pipeline, "testing")


@pytest.mark.parametrize("job_target", get_args(Target))
def test_environment_and_job_file_have_the_same_keys_of_a_target(job_target: type[Target]) -> None:
    model = getattr(environment, job_target.__name__)
    keys = {field.alias or name for name, field in model.model_fields.items()}
    assert keys == {"kind", *job_target.__struct_fields__}
