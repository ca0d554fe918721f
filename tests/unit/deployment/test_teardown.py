"""Objects that destroy would delete or retain. tests/integration/deployment/test_destroy.py runs the deletion."""

from __future__ import annotations

from dataclasses import replace

import psycopg
import pytest
from tests.unit.deployment.samples import NAME, Deployed, Serve, service
from tests.unit.fake_connect import FakeConnect
from tests.unit.fake_kafka import FakeKafka
from tests.unit.fake_postgres import FakePostgres
from tests.unit.postgres.samples import DEPLOYED
from tests.unit.support import Request

from outbox_events.errors import RefusedError, RejectedError, UnreachableError
from outbox_events.kafka.topic_requests import Bounds
from outbox_kit.connect.connector_config import ROUTER
from outbox_kit.connect.state import ActualConnector
from outbox_kit.deployment import Deployment, DestroyOptions, apply, destroy, plan_destroy, unused_topics
from outbox_kit.deployment.identity import names_of
from outbox_kit.deployment.teardown import delivered_position
from outbox_kit.pipeline import Lock
from outbox_kit.postgres.count_undelivered import DeliveredPosition
from outbox_kit.results import silent

TOPICS = ("library.book", "library.author", "__debezium-heartbeat.library")
RETAINED_TABLES = (
    "table public.outbox_event and its rows, which belong to the service",
    "4 tables of the Spark jobs (run `outbox-rebuild --new-topic` after the topics are created again)",
)


@pytest.fixture
def connect(database: FakePostgres, deployed: Deployed) -> FakeConnect:
    """A worker on which the connector runs."""
    fake = FakeConnect(configs={NAME: names_of(deployed().render(None))}, states={NAME: "RUNNING"})
    database.is_read = lambda: fake.states.get(NAME) == "RUNNING"
    return fake


@pytest.fixture
def subjects() -> set[str]:
    """Names of the subjects in the registry."""
    return {f"library.{name}-value" for name in ("author", "book", "outbox-canary")}


@pytest.fixture
def deployment(
    serve: Serve, deployed: Deployed, kafka: FakeKafka, connect: FakeConnect, subjects: set[str], lock: Lock
) -> Deployment:
    """A deployment with a lock file and three topics. The topics of books and heartbeats contain records."""
    kafka.states = {name: kafka.states[name] for name in TOPICS}
    kafka.states["foreign"] = kafka.states["library.book"]
    kafka.bounds_by_topic = {name: {0: Bounds(0, 1)} for name in (TOPICS[0], TOPICS[2])}

    def registry(request: Request) -> tuple[int, object]:
        name = request.path.split("/")[2]
        if name not in subjects:
            return 404, {"error_code": 40401, "message": "not found"}
        if request.method == "DELETE":
            subjects.remove(name)
            return 200, [1]
        return 200, {"subject": name, "version": 1, "id": 1, "schema": '"string"'}

    target = deployed(connect=service(serve(connect)), registry=service(serve(registry)))
    target.write_lock(lock)
    return target


@pytest.fixture
def lock(lock: Lock, deployed: Deployed) -> Lock:
    """A lock file of a complete apply."""
    return lock.model_copy(update={"names": names_of(deployed().render(lock))})


def test_retains_data_without_the_option(deployment: Deployment) -> None:
    actual = plan_destroy(deployment, DestroyOptions())
    assert [(change.object, change.action, change.danger) for change in actual.changes] == [
        ("connector library-outbox", "delete", ""),
        ("topic library.author", "delete", ""),
        ("topic __debezium-heartbeat.library", "delete", ""),
        ("slot library_outbox", "delete", ""),
        ("publication library_outbox", "delete", ""),
    ]
    assert actual.retained == (
        "schema library.author-value, because records contain its ids (--delete-schemas deletes it)",
        "schema library.book-value, because records contain its ids (--delete-schemas deletes it)",
        "schema library.outbox-canary-value, because records contain its ids (--delete-schemas deletes it)",
        "topic library.book, because it has records (--delete-topics deletes it)",
        *RETAINED_TABLES,
    )


def test_deletes_all_objects_except_the_table_in_reverse_order(deployment: Deployment) -> None:
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
    assert actual.retained == RETAINED_TABLES


def test_deletes_only_what_the_pipeline_no_longer_uses(
    deployment: Deployment, kafka: FakeKafka, connect: FakeConnect, subjects: set[str], lock: Lock
) -> None:
    """The aggregate type `stock` was removed from the pipeline file. apply keeps its topic in the lock file."""
    kafka.states["library.stock"] = kafka.states["library.book"]
    kafka.bounds_by_topic["library.stock"] = {0: Bounds(0, 1)}
    subjects.add("library.stock-value")
    stock = lock.topics["library.book"].model_copy(update={"aggregate_type": "stock"})
    deployment.write_lock(lock.model_copy(update={"topics": {**lock.topics, "library.stock": stock}}))
    apply(deployment, silent, only=["kafka"])
    assert unused_topics(deployment) == ["library.stock"]
    assert destroy(deployment, silent, DestroyOptions(unused=True)).changes == ()
    options = DestroyOptions(unused=True, delete_topics=True, delete_schemas=True)
    config = connect.configs[NAME]
    router = {"transforms": "o", "transforms.o.type": ROUTER, "transforms.o.aggregates": "stock"}
    connect.configs[NAME] = config | router | {"transforms.o.aggregate.stock.topic": "library.stock"}
    with pytest.raises(RefusedError, match=r"still writes to library\.stock"):
        destroy(deployment, silent, options)
    connect.configs[NAME] = config
    # A lock file that another pipeline wrote can contain the topics of a third one.
    connect.configs["another"], connect.states["another"] = {"topic.prefix": "library.stock"}, "RUNNING"
    deployment.write_lock(lock.model_copy(update={"topics": {**lock.topics, "library.stock.dead-letter": stock}}))
    kafka.states["library.stock.dead-letter"] = kafka.states["library.book"]
    with pytest.raises(RefusedError, match=r"connector 'another' still writes to library\.stock\.dead-letter"):
        destroy(deployment, silent, options)
    del connect.configs["another"], kafka.states["library.stock.dead-letter"]
    deployment.write_lock(lock.model_copy(update={"topics": {**lock.topics, "library.stock": stock}}))
    done = destroy(deployment, silent, options)
    assert [change.object for change in done.changes] == ["schema library.stock-value", "topic library.stock"]
    assert "library.stock" not in kafka.states.keys() | subjects
    assert unused_topics(deployment) == []
    assert (connect.states[NAME], "library.book" in kafka.states) == ("RUNNING", True)


@pytest.mark.parametrize(
    ("update", "found"),
    [
        ({"topics": {}}, "topic library.author"),
        ({"names": {}, "unfinished": None}, "connector"),
        ({"schemas": {}}, "schema"),
    ],
)
def test_deletes_only_what_the_lock_file_records(
    deployment: Deployment, lock: Lock, update: dict[str, object], found: str
) -> None:
    """`apply --only SYSTEM` records only the objects of this system."""
    deployment.write_lock(lock.model_copy(update=update))
    with pytest.raises(RefusedError, match=f"{found}.* does not belong to the pipeline of lock file"):
        destroy(deployment, silent, DestroyOptions(delete_schemas=True))


def test_requires_the_lock_file_to_find_unused_topics(deployment: Deployment) -> None:
    deployment.lock_file.unlink(missing_ok=True)
    with pytest.raises(RefusedError, match="does not exist, so the topics of removed types are not known"):
        destroy(deployment, silent, DestroyOptions(unused=True, delete_topics=True))


def test_reports_nothing_to_delete(
    deployment: Deployment, database: FakePostgres, kafka: FakeKafka, connect: FakeConnect, subjects: set[str]
) -> None:
    """The first run deleted the lock file with the last topic."""
    database.actual = replace(DEPLOYED, slot=None, publication=None)
    connect.configs.clear()
    kafka.states.clear()
    subjects.clear()
    deployment.lock_file.unlink()
    assert plan_destroy(deployment, DestroyOptions()).changes == ()


def test_rejects_objects_without_a_lock_file(deployment: Deployment) -> None:
    deployment.lock_file.unlink()
    with pytest.raises(RefusedError, match=r"library-outbox may belong"):
        plan_destroy(deployment, DestroyOptions())


def test_rejects_objects_that_the_lock_file_does_not_contain(
    deployment: Deployment, kafka: FakeKafka, connect: FakeConnect
) -> None:
    """OUTBOX__PREFIX, OUTBOX__SOURCE__SLOT or OUTBOX__CONNECTOR__NAME was set for another pipeline."""
    pipeline, everything = deployment.pipeline, DestroyOptions(drop_slot=True, delete_topics=True)
    kafka.states["victim.book"] = kafka.states["foreign"]
    source = pipeline.source.model_copy(update={"slot": "victim"})
    for changed, refusal in (
        (pipeline.model_copy(update={"prefix": "victim"}), "topic.prefix is 'victim'"),
        (pipeline.model_copy(update={"source": source}), "slot.name is 'victim'"),
    ):
        with pytest.raises(RefusedError, match=refusal):
            destroy(replace(deployment, pipeline=changed), silent, everything)
    other = replace(deployment, pipeline=pipeline.model_copy(update={"prefix": "victim"}))
    with pytest.raises(RefusedError, match=r"topic\.prefix is 'victim'"):
        destroy(other, silent, DestroyOptions(delete_topics=True, unused=True))
    connect.configs[NAME]["slot.name"] = "victim"
    with pytest.raises(RefusedError, match=f"connector {NAME} does not belong"):
        destroy(deployment, silent, everything)
    assert "victim.book" in kafka.states
    assert connect.states == {NAME: "RUNNING"}


def test_rejects_another_database(deployment: Deployment, database: FakePostgres) -> None:
    database.actual = replace(DEPLOYED, system_identifier="99")
    with pytest.raises(RefusedError, match=r"system identifier 99, .* 7301"):
        plan_destroy(deployment, DestroyOptions(drop_slot=True))


def test_a_second_destroy_rejects_another_database(
    deployment: Deployment, database: FakePostgres, kafka: FakeKafka
) -> None:
    """The first run deleted the slot, and removed it from the lock file."""
    destroy(deployment, silent, DestroyOptions())
    database.actual = replace(DEPLOYED, system_identifier="99")
    with pytest.raises(RefusedError, match=r"system identifier 99, .* 7301"):
        destroy(deployment, silent, DestroyOptions(drop_slot=True, delete_topics=True))
    assert database.actual.slot == DEPLOYED.slot
    assert "library.book" in kafka.states


def test_is_refused_in_a_protected_environment(deployment: Deployment, connect: FakeConnect) -> None:
    protected = replace(deployment, environment=deployment.environment.model_copy(update={"protected": True}))
    for run in (
        lambda: plan_destroy(protected, DestroyOptions()),
        lambda: destroy(protected, silent, DestroyOptions()),
    ):
        with pytest.raises(RefusedError, match="environment fixed is protected"):
            run()
    assert connect.states == {NAME: "RUNNING"}


def test_deletes_the_lock_file_with_the_last_topic(
    deployment: Deployment, database: FakePostgres, kafka: FakeKafka, connect: FakeConnect, lock: Lock
) -> None:
    destroy(deployment, silent, DestroyOptions())
    assert (connect.configs, list(kafka.states)) == ({}, ["library.book", "foreign"])
    assert (database.actual.slot, database.actual.publication) == (None, None)
    retained = deployment.lock()
    assert retained is not None
    assert (retained.source, retained.source_epoch) == (None, lock.source_epoch + 1)
    assert {name: entry.pending_backfill for name, entry in retained.topics.items()} == {"library.book": "required"}
    destroy(deployment, silent, DestroyOptions())
    assert deployment.lock() == retained, "a second run does not raise it again"
    destroy(deployment, silent, DestroyOptions(delete_topics=True))
    without_topics = deployment.lock()
    assert without_topics is not None, "the subjects are retained"
    assert without_topics.topics == {}
    destroy(deployment, silent, DestroyOptions(delete_schemas=True))
    assert deployment.lock() is None
    destroy(deployment, silent, DestroyOptions())


def test_without_a_connector_no_kafka_connect_is_needed(
    deployment: Deployment, lock: Lock, deployed: Deployed, database: FakePostgres
) -> None:
    """A pipeline that has only a relay may have no Kafka Connect."""
    alone = replace(deployment, connect=deployed().connect)
    for recorded in (lock, lock.model_copy(update={"names": {}, "unfinished": "recover"})):
        alone.write_lock(recorded)
        with pytest.raises(UnreachableError):
            plan_destroy(alone, DestroyOptions())
    alone.write_lock(lock.model_copy(update={"source": None, "names": {}}))
    database.actual = replace(DEPLOYED, slot=None, publication=None)
    removal = destroy(alone, silent, DestroyOptions(delete_topics=True))
    assert {change.kind for change in removal.changes} == {"topic"}


@pytest.mark.parametrize(
    ("offsets", "expected"),
    [
        ([], DeliveredPosition()),
        ([{"partition": {}, "offset": None}], DeliveredPosition()),
        ([{"partition": {}, "offset": {"lsn": 5, "lsn_proc": 5, "lsn_commit": 5}}], DeliveredPosition(5, 5)),
        (
            [{"partition": {}, "offset": {"lsn": 9, "lsn_commit": 7, "txId": 700, "messageType": "INSERT"}}],
            DeliveredPosition(7, 9, "700"),
        ),
    ],
    ids=["none", "reset", "seed", "in a transaction"],
)
def test_delivered_rows_follow_the_offset(offsets: list[dict[str, object]], expected: DeliveredPosition) -> None:
    assert delivered_position(ActualConnector({}, None, offsets)) == expected


@pytest.mark.parametrize("state", ["RUNNING", "STOPPED"])
@pytest.mark.parametrize(
    ("events", "error", "message"),
    [
        (psycopg.errors.QueryCanceled("timeout"), RejectedError, "whether the WAL contains undelivered events"),
        (2, RefusedError, "has 2 undelivered events; nothing was deleted"),
    ],
    ids=["unreadable", "undelivered rows"],
)
def test_deletes_nothing_if_rows_would_be_lost(
    deployment: Deployment,
    connect: FakeConnect,
    database: FakePostgres,
    events: int | Exception,
    error: type[Exception],
    message: str,
    state: str,
) -> None:
    connect.states[NAME], database.events = state, events
    messages: list[str] = []
    before = deployment.lock()
    with pytest.raises(error, match=message):
        destroy(deployment, messages.append, DestroyOptions())
    assert connect.states == {NAME: state}
    assert (database.actual, deployment.lock()) == (DEPLOYED, before)
    assert ("resume connector library-outbox, because the command failed" in messages) == (state == "RUNNING")
