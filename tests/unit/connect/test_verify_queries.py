"""Requests of `outbox verify` to a worker, with a real HTTP server."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from typing import get_args

import pytest
from tests.unit.connect_samples import DESIRED, MOVED, PLUGIN, ROUTER, RUNNING, Serve
from tests.unit.fake_connect import FakeConnect, error
from tests.unit.support import Request

from outbox_kit.connect import checks
from outbox_kit.connect.checks import ConnectState
from outbox_kit.connect.client import ConnectClient
from outbox_kit.connect.verify_queries import Endpoint, observe
from outbox_kit.pipeline import Connect
from outbox_kit.results.checks import Status

PLUGINS = [{"class": PLUGIN, "version": "3"}, {"class": ROUTER, "version": "0.1.0"}]
STATUS = {"connector": {"state": "RUNNING"}, "tasks": [{"state": "RUNNING"}]}
SECRET = "resolved-secret"
VALIDATED = {
    "configs": [
        {"definition": {}, "value": {"name": "a", "value": SECRET, "errors": []}},
        {"definition": {}, "value": {"name": "b", "value": "${env:GONE}", "errors": []}},
        {"definition": {}, "value": {"name": "c", "value": "x-${file:/f:k}-y", "errors": ["not a number"]}},
        {"definition": {}, "value": {"name": "d", "value": None, "errors": []}},
        {"definition": None, "value": None},
    ]
}


def test_reads_the_validated_config(serve: Serve) -> None:
    server = serve([(200, VALIDATED)])
    with closing(ConnectClient(Connect(url=server.url))) as client:
        actual = client.validate("c", DESIRED)
    assert actual.errors == {"c": ["not a number"]}
    assert actual.unresolved_keys == ["b", "c"]
    assert SECRET not in repr(actual), "resolved values are dropped"
    assert server.seen[0].method == "PUT"
    assert server.seen[0].body == {"name": "c", **DESIRED}


def test_sends_one_request_for_all_connectors(serve: Serve) -> None:
    """One request is sent even for 200 connectors. A connector that is being deleted has no `info`."""
    answer = {f"c{n}": {"info": {"config": {"n": str(n)}}} for n in range(200)} | {"gone": {}}
    server = serve([(200, answer)])
    with closing(ConnectClient(Connect(url=server.url))) as client:
        actual = client.listed_connectors()
    assert len(actual) == 200
    assert [request.path for request in server.seen] == ["/connectors?expand=info&expand=status"]


def test_sends_a_fixed_number_of_requests(serve: Serve) -> None:
    config = {"name": "c", **DESIRED, "database.password": "********", "slot.name": "s"}
    other = {"info": {"config": {"connector.class": PLUGIN, "slot.name": "s", "topic.prefix": "t"}}, "status": STATUS}
    script = [
        (200, {"kafka_cluster_id": "k1"}),
        (200, {"c": {"info": {"config": config}, "status": STATUS}, "other": other}),
        (200, {"offsets": MOVED}),
        (200, PLUGINS),
        (200, VALIDATED),
    ]
    server = serve(script)
    with closing(ConnectClient(Connect(url=server.url))) as client:
        actual = observe(client, Connect(url=server.url), "c", DESIRED)
    assert (actual.cluster_id, actual.versions) == ("k1", {PLUGIN: "3", ROUTER: "0.1.0"})
    assert actual.shared[0].text == "slot.name 's' is also used by connector 'other'"
    assert actual.actual.status
    assert actual.actual.status.text == RUNNING.text
    assert len(server.seen) == len(script)
    sent = server.seen[-1].body
    assert sent["database.password"] == DESIRED["database.password"], "a mask is never sent back"
    assert sent["slot.name"] == "s"


def faulty(fault: str, respond: FakeConnect) -> Callable[[Request], tuple[int, object]]:
    """Respond like `respond`, but with HTTP 500 to requests whose method and path end with `fault`."""

    def answer(request: Request) -> tuple[int, object]:
        path = request.path.partition("?")[0]
        return error(500, "broken") if f"{request.method} {path}".endswith(fault) else respond(request)

    return answer


PLUGIN_CHECKS = {"connect.smt-version", "connect.debezium-version", "connect.workers"}


@pytest.mark.parametrize(
    ("fault", "endpoint", "failed", "unknown"),
    [
        ("GET /", "worker", "connect.cluster", {"connect.workers"}),
        ("GET /connectors/c/offsets", "offsets", "connect.offsets", set()),
        (
            "GET /connectors",
            "connectors",
            "connect.connector",
            {
                "connect.running",
                "connect.config",
                "connect.valid",
                "connect.placeholders",
                "connect.exactly-once",
                "connect.exclusive",
                "connect.offsets",
            },
        ),
        ("GET /connector-plugins", "plugins", "connect.plugins", PLUGIN_CHECKS),
        ("/validate", "validation", "connect.valid", {"connect.placeholders", "connect.exactly-once"}),
    ],
)
def test_an_endpoint_that_fails_is_reported_by_its_own_check(
    serve: Serve, fault: str, endpoint: str, failed: str, unknown: set[str]
) -> None:
    worker = FakeConnect(PLUGINS, configs={"c": DESIRED}, states={"c": "RUNNING"}, offsets={"c": MOVED})
    server = serve(faulty(fault, worker))
    with closing(ConnectClient(Connect(url=server.url))) as client:
        observed = observe(client, Connect(url=server.url), "c", DESIRED)
    assert list(observed.errors) == [endpoint]
    actual = {
        check.id: check for check in checks.check(ConnectState("c", DESIRED, observed, "running", "required", "k"))
    }
    assert list(actual) == [rule.id for rule in checks.RULES]
    assert actual[failed].status is Status.FAIL
    assert "broken (HTTP 500)" in actual[failed].seen
    assert {name for name, check in actual.items() if check.seen == f"see {failed}"} == unknown
    assert actual["connect.reachable"].status is Status.PASS


def test_an_endpoint_that_does_not_respond_delays_the_others_only_until_the_limit(serve: Serve) -> None:
    """Connect reads a connector's offsets from Kafka, which can take forever if a topic does not exist."""
    worker = FakeConnect(PLUGINS, configs={"c": DESIRED}, states={"c": "RUNNING"}, offsets={"c": MOVED})
    is_over = threading.Event()

    def answer(request: Request) -> tuple[int, object]:
        if request.path.endswith("/offsets"):
            is_over.wait(60)
        return worker(request)

    server = serve(answer)
    try:
        with closing(ConnectClient(Connect(url=server.url)).bounded(0.2)) as client:
            observed = observe(client, Connect(url=server.url), "c", DESIRED)
    finally:
        is_over.set()
    assert list(observed.errors) == ["offsets"]
    assert "GET /connectors/c/offsets: no response within 0.2 s" in observed.errors["offsets"].message
    assert observed.actual.config is not None
    assert observed.validation is not None


def test_every_check_names_existing_endpoints() -> None:
    assert set(checks.ENDPOINTS) == {rule.id for rule in checks.RULES} - {"connect.reachable"}
    assert {name for names in checks.ENDPOINTS.values() for name in names} == set(get_args(Endpoint))


def test_queries_each_worker(serve: Serve, free_port: int) -> None:
    """Each response of the REST API describes only one worker."""
    worker, server = serve(FakeConnect(PLUGINS)), serve(FakeConnect(PLUGINS))
    missing = f"http://127.0.0.1:{free_port}"
    service = Connect(url=f"{server.url}/", workers=[worker.url, missing])
    with closing(ConnectClient(service)) as client:
        actual = observe(client, service, "c", DESIRED)
    assert actual.validation is None, "without a connector there is nothing to validate"
    assert [(item.url, item.versions, bool(item.error)) for item in actual.workers] == [
        (server.url, {PLUGIN: "3", ROUTER: "0.1.0"}, False),
        (worker.url, {PLUGIN: "3", ROUTER: "0.1.0"}, False),
        (missing, {}, True),
    ]
