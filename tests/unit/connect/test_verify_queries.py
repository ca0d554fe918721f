"""Requests of `outbox verify` to a worker, against a real HTTP server."""

from __future__ import annotations

from contextlib import closing

from tests.unit.connect_samples import DESIRED, MOVED, PLUGIN, ROUTER, RUNNING, Serve
from tests.unit.fake_connect import FakeConnect

from outbox_kit.connect.client import ConnectClient
from outbox_kit.connect.verify_queries import observe
from outbox_kit.pipeline import Connect

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
    """Also with 200 connectors. A connector that is being deleted has no `info`."""
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
        (200, {"c": {"info": {"config": config}, "status": STATUS}, "other": other}),
        (200, {"offsets": MOVED}),
        (200, {"kafka_cluster_id": "k1"}),
        (200, PLUGINS),
        (200, VALIDATED),
    ]
    server = serve(script)
    with closing(ConnectClient(Connect(url=server.url))) as client:
        actual = observe(client, Connect(url=server.url), "c", DESIRED)
    assert (actual.cluster_id, actual.versions) == ("k1", {PLUGIN: "3", ROUTER: "0.1.0"})
    assert actual.conflicts[0] == "slot.name 's' is also used by connector 'other'"
    assert actual.actual.status
    assert actual.actual.status.text == RUNNING.text
    assert len(server.seen) == len(script)
    sent = server.seen[-1].body
    assert sent["database.password"] == DESIRED["database.password"], "a mask is never sent back"
    assert sent["slot.name"] == "s"


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
