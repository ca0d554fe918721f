"""Objects that destroy would delete and keep; tests/integration/deployment/test_destroy.py executes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.unit.connect.samples import listing
from tests.unit.deployment.samples import NO_CONNECTOR, Deployed, Serve, service
from tests.unit.postgres.samples import DEPLOYED

from outbox_kit.connect.state import ActualConnector
from outbox_kit.deployment import Deployment, DestroyOptions, plan_destroy, teardown
from outbox_kit.deployment.teardown import delivered
from outbox_kit.errors import RefusedError, RejectedError
from outbox_kit.kafka.client import KafkaClient
from outbox_kit.pipeline import Lock
from outbox_kit.postgres.state import ActualDatabase
from outbox_kit.postgres.undelivered_events import Delivered

NO_SUBJECT: tuple[int, object] = (404, {"error_code": 40401, "message": "not found"})
SUBJECT: tuple[int, object] = (200, {"subject": "s", "version": 1, "id": 1, "schema": '"string"'})
TOPICS = {"library.book": (4, 3), "library.author": (4, 3), "__debezium-heartbeat.library": (1, 3), "else": (1, 1)}
Scenario = Callable[..., Deployment]


@pytest.fixture
def scenario(serve: Serve, deployed: Deployed, monkeypatch: pytest.MonkeyPatch) -> Scenario:
    """A deployment with these topics (books and heartbeats have records), database, and connector or not."""

    def made(
        *, database: ActualDatabase = DEPLOYED, topics: dict[str, tuple[int, int]] = TOPICS, running: bool = True
    ) -> Deployment:
        monkeypatch.setattr(teardown, "refuse_wrong_cluster", lambda *_: "k")
        monkeypatch.setattr(Deployment, "read_database", lambda _: database)
        monkeypatch.setattr(KafkaClient, "topics", lambda _: topics)
        monkeypatch.setattr(KafkaClient, "has_records", lambda _, name, __: name.endswith(("book", ".library")))
        connect = serve([(200, {"a": "b"}) if running else NO_CONNECTOR])
        return deployed(connect=service(connect), registry=service(serve([SUBJECT if running else NO_SUBJECT])))

    return made


def test_keeps_data_without_its_flag(scenario: Scenario, lock: Lock) -> None:
    deployment = scenario()
    deployment.write_lock(lock)
    actual = plan_destroy(deployment, DestroyOptions())
    assert [(change.object, change.action, change.danger) for change in actual.changes] == [
        ("connector library-outbox", "delete", ""),
        ("topic library.author", "delete", ""),
        ("topic __debezium-heartbeat.library", "delete", ""),
        ("slot library_outbox", "delete", ""),
        ("publication library_outbox", "delete", ""),
    ]
    assert actual.retained == (
        "schema library.author-value: records contain its ids (--delete-schemas)",
        "schema library.book-value: records contain its ids (--delete-schemas)",
        "schema library.outbox-canary-value: records contain its ids (--delete-schemas)",
        "topic library.book: it has records (--delete-topics)",
        "table public.outbox_event and its rows: they belong to the service",
    )


def test_deletes_all_but_the_table_in_reverse_order_with_every_flag(scenario: Scenario, lock: Lock) -> None:
    deployment = scenario()
    deployment.write_lock(lock)
    actual = plan_destroy(deployment, DestroyOptions(drop_slot=True, delete_topics=True, delete_schemas=True))
    assert [change.system for change in actual.changes] == [
        "connect",
        *["registry"] * 3,
        *["kafka"] * 3,
        *["postgres"] * 2,
    ]
    dangerous = [change.object for change in actual.changes if change.danger]
    assert dangerous == [
        "schema library.author-value",
        "schema library.book-value",
        "schema library.outbox-canary-value",
        "topic library.book",
        "slot library_outbox",
    ]
    assert actual.retained == ("table public.outbox_event and its rows: they belong to the service",)


def test_reports_nothing_to_delete(scenario: Scenario) -> None:
    """A second run, without a lock file: it went with the last topic."""
    removed = replace(DEPLOYED, slot=None, publication=None)
    assert plan_destroy(scenario(database=removed, topics={}, running=False), DestroyOptions()).changes == ()


def test_rejects_objects_without_a_lock_file(scenario: Scenario) -> None:
    with pytest.raises(RefusedError, match=r"connector library-outbox may belong to another pipeline"):
        plan_destroy(scenario(), DestroyOptions())


def test_rejects_another_database(scenario: Scenario, lock: Lock) -> None:
    deployment = scenario(database=replace(DEPLOYED, system_identifier="99"))
    deployment.write_lock(lock)
    with pytest.raises(RefusedError, match=r"system identifier 99, the lock file has 7301"):
        plan_destroy(deployment, DestroyOptions(drop_slot=True))


def test_deletes_the_lock_file_with_the_last_topic(scenario: Scenario, lock: Lock) -> None:
    deployment = scenario()
    deployment.write_lock(lock)
    teardown._reset_lock(deployment)
    retained = deployment.lock()
    assert retained is not None
    assert (retained.source, retained.source_epoch) == (None, lock.source_epoch + 1)
    teardown._reset_lock(deployment)
    assert deployment.lock() == retained, "a second run does not raise it again"
    teardown._reset_lock(scenario(topics={"else": (1, 1)}))
    assert deployment.lock() is None
    teardown._reset_lock(deployment)


@pytest.mark.parametrize(
    ("offsets", "expected"),
    [
        ([], Delivered()),
        ([{"partition": {}, "offset": None}], Delivered()),
        ([{"partition": {}, "offset": {"lsn": 5, "lsn_proc": 5, "lsn_commit": 5}}], Delivered(5, 5)),
        (
            [{"partition": {}, "offset": {"lsn": 9, "lsn_commit": 7, "txId": 700, "messageType": "INSERT"}}],
            Delivered(7, 9, "700"),
        ),
    ],
    ids=["none", "reset", "seed", "in a transaction"],
)
def test_delivered_rows_follow_the_offset(offsets: list[dict[str, object]], expected: Delivered) -> None:
    assert delivered(ActualConnector({}, None, offsets)) == expected


@pytest.mark.parametrize(("state", "last"), [("RUNNING", ["stop", "resume"]), ("STOPPED", ["stop"])])
def test_keeps_the_connector_when_the_slot_cannot_be_read(
    serve: Serve, deployed: Deployed, monkeypatch: pytest.MonkeyPatch, state: str, last: list[str]
) -> None:
    def fails(*_: object) -> int:
        raise RejectedError("the WAL was not read to its end")

    status = {"connector": {"state": state, "worker_id": "w"}, "tasks": []}
    stopped = {"connector": {"state": "STOPPED", "worker_id": "w"}, "tasks": []}
    offsets: tuple[int, object] = (200, {"offsets": []})
    script = [listing({"a": "b"}, status), offsets, (204, None), (200, stopped), listing({"a": "b"}, stopped), offsets]
    server = serve([*script, (204, None)])
    monkeypatch.setattr(teardown, "_count_undelivered", fails)
    messages: list[str] = []
    with pytest.raises(RejectedError, match="not read to its end"):
        teardown._stop(deployed(connect=service(server)), messages.append, DestroyOptions())
    assert [request.path.rsplit("/", 1)[1] for request in server.seen if request.method == "PUT"] == last
    assert ("resume connector library-outbox: nothing was changed" in messages) == (state == "RUNNING")
