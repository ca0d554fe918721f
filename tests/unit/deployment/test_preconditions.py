"""Conditions under which apply and destroy refuse to start."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import pytest
from tests.unit.deployment.samples import NAME, Deployed, Serve, service
from tests.unit.fake_connect import FakeConnect
from tests.unit.fake_kafka import FakeKafka
from tests.unit.fake_postgres import FakePostgres
from tests.unit.postgres.samples import DEPLOYED

from outbox_events.contract.source_sequence import Version
from outbox_events.errors import RefusedError
from outbox_events.kafka.topic_requests import Bounds
from outbox_kit.connect.config_diff import PIPELINE_KEY
from outbox_kit.deployment import Plan, make_plan, preconditions, source_epochs
from outbox_kit.deployment.preconditions import (
    refuse_dangerous,
    refuse_lost_lock,
    refuse_missing_prerequisites,
    refuse_used_slot,
    refuse_violated_rules,
)
from outbox_kit.deployment.recorded_objects import adoptions
from outbox_kit.pipeline import HttpService, Lock
from outbox_kit.results.changes import Change
from outbox_kit.results.checks import Check, Severity, Status
from outbox_kit.results.repair_commands import APPLY_RECOVER_HINT

ADD_PARTITIONS = Change("kafka", "topic", "a", "update", "why", "4 partitions", "8 partitions", "keys move")
CHANGE_COMPATIBILITY = Change("registry", "compatibility", "b", "update", "why", "NONE", "FULL")
SLOT = Change("postgres", "slot", "s", "create", "why", danger="rows are lost")
PLAN = Plan("library", "local", (ADD_PARTITIONS, CHANGE_COMPATIBILITY), files="f1")


def test_uses_the_highest_epoch_of_all_topics(
    deployed: Deployed, kafka: FakeKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Topics of other pipelines are not read."""
    topics = ("library.book", "library.author", "library.dead-letter", "other")
    kafka.states = {name: kafka.states["library.book"] for name in topics}
    kafka.bounds_by_topic = {name: {0: Bounds(0, len(name))} for name in topics}
    requests: dict[str, object] = {}

    def version_of_topic(_: object, topic: str, bounds: object, **__: object) -> Version:
        requests[topic] = bounds
        return Version({"library.book": "0003_0-0"}.get(topic, "0001_f-f"))

    monkeypatch.setattr(source_epochs.source_epoch, "highest_version", version_of_topic)
    assert source_epochs.highest_epoch(deployed()) == 3
    assert requests == {name: {0: Bounds(0, len(name))} for name in topics[:3]}


@pytest.mark.parametrize(
    ("locked", "written", "message"),
    [
        (None, 1, "does not exist: with epoch 1 every sink"),
        (None, 4, "does not exist: with epoch 1 every sink"),
        (1, 1, "does not contain the slot: with epoch 1 every sink"),
    ],
    ids=["first epoch", "later epoch", "source unknown"],
)
def test_rejects_existing_records_of_the_next_epoch(
    deployed: Deployed, lock: Lock, monkeypatch: pytest.MonkeyPatch, locked: int | None, written: int, message: str
) -> None:
    monkeypatch.setattr(preconditions, "highest_epoch", lambda _: written)
    names = {"slot.name": "library_outbox"}
    actual = lock.model_copy(update={"source": None, "source_epoch": locked, "names": names}) if locked else None
    with pytest.raises(RefusedError) as caught:
        refuse_lost_lock(deployed(), actual)
    assert f"records of source epoch {written}, but the lock file " in caught.value.message
    assert message in caught.value.message
    assert APPLY_RECOVER_HINT in caught.value.hint


def test_names_the_move_to_the_connector_for_a_pipeline_that_has_only_a_relay(
    deployed: Deployed, lock: Lock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preconditions, "highest_epoch", lambda _: 2)
    with pytest.raises(RefusedError, match="only a relay") as caught:
        refuse_lost_lock(deployed(), lock.model_copy(update={"source": None, "config": None}))
    assert "--only kafka --only registry" in caught.value.hint


@pytest.mark.parametrize(("locked", "written"), [(None, 0), (2, 1)], ids=["nothing written", "destroyed before"])
def test_accepts_records_of_an_earlier_epoch(
    deployed: Deployed, lock: Lock, monkeypatch: pytest.MonkeyPatch, locked: int | None, written: int
) -> None:
    monkeypatch.setattr(preconditions, "highest_epoch", lambda _: written)
    refuse_lost_lock(deployed(), lock.model_copy(update={"source": None, "source_epoch": locked}) if locked else None)


def test_reads_no_topic_with_a_lock_file(deployed: Deployed, lock: Lock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preconditions, "highest_epoch", lambda _: pytest.fail("read"))
    refuse_lost_lock(deployed(), lock)


@pytest.mark.usefixtures("database", "kafka")
def test_plan_of_the_database_needs_the_lock_file(deployed: Deployed, monkeypatch: pytest.MonkeyPatch) -> None:
    """The epoch of a new lock file would be too low. A plan of topics adopts them instead."""
    monkeypatch.setattr(preconditions, "highest_epoch", lambda _: 1)
    deployment = deployed()
    with pytest.raises(RefusedError, match="records of source epoch 1"):
        make_plan(deployment, only=["postgres"])
    assert {change.action for change in make_plan(deployment, only=["kafka"]).changes} == {"adopt"}


@pytest.mark.usefixtures("kafka")
@pytest.mark.parametrize(("active", "decoded", "is_refused"), [(True, 0, True), (False, 3, True), (False, 0, False)])
@pytest.mark.parametrize("takes_over", [False, True])
def test_slot_that_a_client_has_read_needs_the_lock_file(
    deployed: Deployed,
    database: FakePostgres,
    lock: Lock,
    active: bool,
    decoded: int,
    is_refused: bool,
    takes_over: bool,
) -> None:
    """The client can be the connector of another pipeline, also at another Connect cluster."""
    assert database.actual.slot is not None
    database.actual = replace(database.actual, slot=replace(database.actual.slot, active=active))
    database.decoded = decoded
    deployment = deployed()
    with (
        pytest.raises(RefusedError, match="slot 'library_outbox', which")
        if is_refused and not takes_over
        else nullcontext()
    ):
        make_plan(deployment, only=["postgres"], takes_over=takes_over)
    names = {"slot.name": "library_outbox", "publication.name": "library_outbox"}
    for recorded in (lock, lock.model_copy(update={"source": None, "unfinished": "recover", "names": names})):
        deployment.write_lock(recorded)
        make_plan(deployment, only=["postgres"])
    assert lock.source is not None  # the lock file has another slot
    deployment.write_lock(lock.model_copy(update={"source": lock.source.model_copy(update={"slot": "another"})}))
    with pytest.raises(RefusedError) if is_refused else nullcontext():
        refuse_used_slot(deployment, database.actual.slot)


@pytest.mark.usefixtures("database", "kafka")
def test_plan_rejects_before_querying_registry_and_connect(
    serve: Serve, deployed: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect, registry = serve(FakeConnect()), serve([])
    monkeypatch.setattr(preconditions, "highest_epoch", lambda _: 2)
    with pytest.raises(RefusedError, match="records of source epoch 2"):
        make_plan(deployed(connect=service(connect), registry=service(registry)))
    assert [request.path for request in connect.seen] == ["/"], "for the id of its Kafka cluster"
    assert registry.seen == []


def test_rejects_a_dangerous_change_with_the_required_flag() -> None:
    with pytest.raises(RefusedError) as caught:
        refuse_dangerous(replace(PLAN, changes=(SLOT, *PLAN.changes)), ["topic b"])
    dangers = "slot s: rows are lost; topic a: keys move"
    assert caught.value.message == f"no change of the plan was made, because it contains dangerous changes: {dangers}"
    assert caught.value.hint == 'to allow these changes, run `outbox apply --allow "slot s" --allow "topic a"`'
    with pytest.raises(RefusedError) as caught:
        refuse_dangerous(PLAN, [], "outbox adopt old")
    assert caught.value.hint == 'to allow these changes, run `outbox adopt old --allow "topic a"`'


@pytest.mark.parametrize(
    ("plan", "allowed"),
    [
        (PLAN, ["topic a"]),
        (PLAN, ["topic a", "of no concern"]),
        (replace(PLAN, changes=(CHANGE_COMPATIBILITY,)), []),
        (replace(PLAN, changes=(SLOT,), recover=True), []),
    ],
    ids=["allowed", "more than needed", "nothing dangerous", "recovering"],
)
def test_executes_allowed_changes(plan: Plan, allowed: list[str]) -> None:
    refuse_dangerous(plan, allowed)


def test_recovery_does_not_allow_other_dangers() -> None:
    with pytest.raises(RefusedError, match="topic a"):
        refuse_dangerous(replace(PLAN, recover=True), [])


def test_connector_changes_come_after_their_requirements() -> None:
    refuse_missing_prerequisites(PLAN)
    with pytest.raises(RefusedError, match="--only excludes: slot s, topic a"):
        refuse_missing_prerequisites(replace(PLAN, waits_for=("slot s", "topic a")))


def test_violated_rule_stops_the_plan() -> None:
    broken = Check("lint.a", Status.FAIL, "1", "2", "do b")
    warning = replace(broken, id="lint.c", severity=Severity.WARNING)
    refuse_violated_rules([warning, Check("lint.d", Status.PASS, "", "")])
    with pytest.raises(RefusedError, match=r"(?m)lint\.a: 1, expected 2$") as caught:
        refuse_violated_rules([warning, broken])
    assert caught.value.hint == "do b"


MARK = "outbox-kit: pipeline library, environment fixed, prefix library, slot library_outbox"
FOREIGN_MARK = MARK.replace("fixed", "production")


@pytest.mark.parametrize("comment", [MARK, FOREIGN_MARK, "another", None])
@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize(
    "changes", [{}, {"publication.name": "p"}, {"database.port": "1"}, {"table.include.list": "a.b"}, None]
)
def test_publication_and_slot_that_neither_lock_file_nor_comment_nor_connector_claims_are_adopted(
    serve: Serve,
    deployed: Deployed,
    lock: Lock,
    kafka: FakeKafka,
    database: FakePostgres,
    comment: str | None,
    recorded: bool,
    changes: dict[str, str] | None,
) -> None:
    """The connector of a copied environment file has all names of the files, but not the mark."""
    config = {NAME: {**deployed().render(None), PIPELINE_KEY: "library", **changes}} if changes is not None else {}
    connect = serve(FakeConnect(configs=config, states={NAME: "RUNNING"}, cluster=kafka.cluster))
    deployment = deployed(connect=service(connect))
    if recorded:
        deployment.write_lock(lock)
    assert DEPLOYED.publication is not None
    database.actual = replace(DEPLOYED, publication={**DEPLOYED.publication, "comment": comment})
    found = list(adoptions(deployment, deployment.lock(), ["postgres"], database.actual, {}))
    is_foreign = comment == FOREIGN_MARK
    is_own = comment == MARK or (recorded and not is_foreign)
    assert [change.kind for change in found] == (
        [] if is_own else ["publication"] if recorded else ["publication", "slot"]
    )
    assert all(change.danger for change in found)


REGISTRY = "http://registry:8081"


@pytest.mark.parametrize(
    ("topics", "schemas", "url", "adopted"),
    [
        (True, True, REGISTRY, []),
        (True, True, None, []),
        (True, True, "http://other:8081", ["registry"]),
        (True, False, "http://other:8081", ["registry", "schema"]),
        (True, False, REGISTRY, ["schema"]),
        (True, False, None, ["schema"]),
        (False, True, REGISTRY, ["topic"]),
        (False, False, None, ["topic", "schema"]),
    ],
)
@pytest.mark.parametrize("owner", ["library", "another", None])
@pytest.mark.usefixtures("database")
def test_existing_objects_that_the_lock_file_does_not_record_are_adopted(
    serve: Serve,
    deployed: Deployed,
    lock: Lock,
    kafka: FakeKafka,
    topics: bool,
    schemas: bool,
    url: str | None,
    adopted: list[str],
    owner: str | None,
) -> None:
    """The live connector of the pipeline proves that the topics are its own. Its config does not name the registry."""
    config = {**deployed(registry=HttpService(url=REGISTRY)).render(None), PIPELINE_KEY: owner or ""}
    worker = FakeConnect(configs={NAME: config} if owner else {}, states={NAME: "RUNNING"}, cluster=kafka.cluster)
    deployment = deployed(connect=service(serve(worker)), registry=HttpService(url=REGISTRY))
    kafka.states = {"library.book": kafka.states["library.book"]}
    registered_versions = lock.schemas["book"]
    lock = lock.model_copy(
        update={
            "registry_url": url,
            "topics": lock.topics if topics else {},
            "schemas": lock.schemas if schemas else {},
        }
    )
    found = list(adoptions(deployment, lock, ["kafka", "registry"], None, {"book": registered_versions}))
    expected = {
        "topic": "topic library.book",
        "schema": "schema library.book-value",
        "registry": f"registry {REGISTRY}",
    }
    if owner == "library":
        adopted = [kind for kind in adopted if kind != "topic"]
    assert [change.object for change in found] == [expected[kind] for kind in adopted]
    assert all(change.danger for change in found)


def test_subjects_of_an_interrupted_apply_are_its_own(deployed: Deployed, lock: Lock) -> None:
    registered = {"book": lock.schemas["book"]}
    interrupted = lock.model_copy(update={"schemas": {}, "created_subjects": ["library.book-value"]})
    assert list(adoptions(deployed(), interrupted, ["registry"], None, registered)) == []


@pytest.mark.parametrize(("recorded", "adopted"), [("k", []), (None, []), ("other", ["cluster k"])])
@pytest.mark.usefixtures("kafka")
def test_another_cluster_needs_consent(
    deployed: Deployed, lock: Lock, recorded: str | None, adopted: list[str]
) -> None:
    """The environment file can have the section `kafka` of another environment."""
    moved = lock.model_copy(update={"cluster_id": recorded})
    found = list(adoptions(deployed(), moved, ["kafka"], None, {}, cluster_id="k"))
    assert [change.object for change in found if change.danger] == adopted


@pytest.mark.parametrize(("has_records", "adopted"), [(False, []), (True, ["topic library.book"])])
def test_topics_of_an_interrupted_apply_are_its_own_while_they_are_empty(
    deployed: Deployed, lock: Lock, kafka: FakeKafka, has_records: bool, adopted: list[str]
) -> None:
    kafka.states = {"library.book": kafka.states["library.book"]}
    kafka.bounds_by_topic = {"library.book": {0: Bounds(0, 1)}} if has_records else {}
    interrupted = lock.model_copy(update={"topics": {}, "created_topics": ["library.book"]})
    found = adoptions(deployed(), interrupted, ["kafka"], None, {})
    assert [change.object for change in found] == adopted


def test_adopt_asks_for_the_publication_of_another_deployment(deployed: Deployed, database: FakePostgres) -> None:
    assert DEPLOYED.publication is not None
    for comment, kinds in ((None, []), ("another", []), (MARK, []), (FOREIGN_MARK, ["publication"])):
        database.actual = replace(DEPLOYED, publication={**DEPLOYED.publication, "comment": comment})
        found = adoptions(deployed(), None, ["postgres"], database.actual, {}, takes_over=True)
        assert [change.kind for change in found] == kinds


@pytest.mark.parametrize("takes_over", [False, True])
@pytest.mark.usefixtures("database")
def test_the_connector_does_not_prove_topics_of_a_longer_prefix(
    serve: Serve, deployed: Deployed, lock: Lock, kafka: FakeKafka, takes_over: bool
) -> None:
    """The other pipeline can have only a relay, or its connector can be at another Connect cluster."""
    config = {NAME: {**deployed().render(None), PIPELINE_KEY: "library"}}
    worker = FakeConnect(configs=config, states={NAME: "RUNNING"}, cluster=kafka.cluster)
    book = kafka.states["library.book"]
    kafka.states = {"library.book": book, "library.author": book, "library.book.dead-letter.acknowledged": book}
    pipeline = deployed().pipeline
    aggregates = {**pipeline.aggregates, "book.note": pipeline.aggregates["book"]}
    kafka.states["library.book.note"] = book
    deployment = replace(
        deployed(connect=service(serve(worker))), pipeline=pipeline.model_copy(update={"aggregates": aggregates})
    )
    lock = lock.model_copy(update={"topics": {}})
    found = adoptions(deployment, lock, ["kafka"], None, {}, takes_over=takes_over)
    assert [change.object for change in found] == ["topic library.book.note"]
