"""Expressions of the dashboard and of the alert rules, evaluated by the Prometheus server of a running stack."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
import requests
import yaml
from tests.compose.compose_stack import REPOSITORY, ComposeStack, start_compose_stack
from tests.conftest import make_project
from tests.integration.transforms.test_records import book, send

from outbox_events.waiting import Observation, wait_for
from outbox_kit.stack.ports import HOST

FOLDER = REPOSITORY / "compose" / "observability"
SCRAPED_SECONDS = 60
REQUEST_SECONDS = 10

pytestmark = pytest.mark.long


def panels() -> list[tuple[str, str]]:
    dashboard = json.loads((FOLDER / "dashboard.json").read_text())
    return [(panel["title"], target["expr"]) for panel in dashboard["panels"] for target in panel["targets"]]


def alerts() -> list[tuple[str, str]]:
    groups = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"]
    return [(rule["alert"], rule["expr"]) for group in groups for rule in group["rules"]]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComposeStack]:
    files = ("compose.yaml", "observability.yaml")
    with start_compose_stack(make_project(tmp_path_factory.mktemp("observed")), files) as stack:
        done = stack.outbox("apply", "--yes")
        assert done.code == 0, done.output
        for _ in range(20):
            key = str(uuid4())
            send(stack.source_dsn, "book", key, book(key))
        yield stack


def query_prometheus(stack: ComposeStack, path: str, **parameters: str) -> Any:  # noqa: ANN401 - JSON
    url = f"http://{HOST}:{stack.values['PROMETHEUS_PORT']}/api/v1/{path}"
    with requests.Session() as session:
        session.trust_env = False
        response = session.get(url, params=parameters, timeout=REQUEST_SECONDS)
    assert response.ok, f"{path} {parameters}: {response.text}"
    return response.json()["data"]


def samples(stack: ComposeStack, expression: str) -> list[Any]:
    actual = query_prometheus(stack, "query", query=expression)["result"]
    assert isinstance(actual, list)
    return actual


def wait_sampled(stack: ComposeStack, expression: str) -> list[Any]:
    """Wait for samples. A sample requires one scrape, and a rate requires two."""
    return wait_for(
        f"samples of {expression}",
        lambda: Observation(samples(stack, expression) or None, "none"),
        seconds=SCRAPED_SECONDS,
        interval=1.0,
    )


@pytest.mark.parametrize(("title", "expression"), panels(), ids=[title for title, _ in panels()])
def test_every_panel_returns_data(stack: ComposeStack, title: str, expression: str) -> None:
    del title
    values = [float(item["value"][1]) for item in wait_sampled(stack, expression)]
    assert not any(math.isnan(value) for value in values), values


@pytest.mark.parametrize(("name", "expression"), alerts(), ids=[name for name, _ in alerts()])
def test_alerts_use_existing_metrics_and_do_not_fire(stack: ComposeStack, name: str, expression: str) -> None:
    for metric in set(re.findall(r"\b(?:up|[a-z]+_[a-z_]+)\b(?=[{ )\s]|$)", expression)):
        wait_sampled(stack, metric)
    loaded = {rule["name"] for group in query_prometheus(stack, "rules")["groups"] for rule in group["rules"]}
    assert name in loaded
    assert samples(stack, expression) == []


def test_alert_fires_for_a_missing_worker(stack: ComposeStack) -> None:
    expression = dict(alerts())["ConnectWorkerDown"]
    stack.container("connect-2").kill()
    actual = wait_sampled(stack, expression)
    assert [item["metric"]["instance"] for item in actual] == ["connect-2:9404"]


def test_alert_fires_for_a_stopped_connector(stack: ComposeStack) -> None:
    done = stack.outbox("--set", "environment.connector.state=stopped", "apply", "--yes")
    assert done.code == 0, done.output
    assert wait_sampled(stack, dict(alerts())["OutboxSlotInactive"])
