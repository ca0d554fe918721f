"""Which systems are those to which the pipeline was deployed, and which commands compare them."""

from __future__ import annotations

import re
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, cast

import pytest
from tests.unit.deployment.samples import NAME, Deployed, Serve, service
from tests.unit.fake_connect import FakeConnect
from tests.unit.fake_kafka import FakeKafka
from tests.unit.fake_postgres import FakePostgres

from outbox_events.errors import RefusedError, RejectedError, UnreachableError
from outbox_kit.deployment import Deployment
from outbox_kit.deployment.identity import (
    CLUSTERS,
    DATABASE_KEYS,
    NAME_KEYS,
    foreign_systems,
    names_of,
    refuse_foreign_systems,
    refuse_lock_of_other_pipeline,
    refuse_other_connector_address,
    refuse_other_owners,
    refuse_other_registry,
    refuse_unapplied_names,
    refuse_wrong_cluster,
)
from outbox_kit.deployment.plan import make_plan
from outbox_kit.deployment.recorded_objects import adoptions
from outbox_kit.pipeline import Kafka, Lock, LockedTopic, SourceDatabase
from outbox_kit.results import silent
from outbox_kit.results.changes import System


@pytest.mark.parametrize(
    ("expected", "locked", "connect", "message"),
    [
        (None, None, "k", None),
        ("k", "other", "k", None),
        (None, "k", "k", None),
        ("other", None, "k", r"kafka\.bootstrap_servers .* belongs to cluster k, but kafka\.cluster_id in the env"),
        (
            None,
            "other",
            "k",
            r"belongs to cluster k, but the cluster of the first apply \(library\.fixed\.lock\.json\)",
        ),
        ("k", None, "other", r"Kafka Connect .* belongs to cluster other, but kafka\.cluster_id"),
        (None, None, "other", r"different clusters: kafka\.bootstrap_servers .* to k, Kafka Connect .* to other"),
    ],
)
def test_rejects_disagreement_of_any_two_sources(
    serve: Serve,
    deployed: Deployed,
    lock: Lock,
    kafka: FakeKafka,
    expected: str | None,
    locked: str | None,
    connect: str,
    message: str | None,
) -> None:
    kafka.cluster = "k"
    settings = Kafka(bootstrap_servers="127.0.0.1:1", cluster_id=expected)
    deployment = deployed(connect=service(serve(FakeConnect(cluster=connect))), kafka=settings)
    lock = lock.model_copy(update={"cluster_id": locked})
    if message is None:
        assert refuse_wrong_cluster(deployment, lock, CLUSTERS) == "k"
        if expected and locked:  # only `apply` moves a pipeline to another cluster
            with pytest.raises(RefusedError, match="cluster of the first apply"):
                refuse_wrong_cluster(deployment, lock, CLUSTERS, accepts_new=False)
    else:
        with pytest.raises(RefusedError, match=message):
            refuse_wrong_cluster(deployment, lock, CLUSTERS)


def test_does_not_query_unselected_systems(deployed: Deployed, lock: Lock) -> None:
    assert refuse_wrong_cluster(deployed(), lock, ["postgres", "registry"]) is None


@pytest.mark.parametrize(
    ("configured", "locked", "actual", "expected"),
    [
        (None, "k", "k", None),
        ("k", "k", "k", None),
        ("other", "k", "k", "other"),
        # `apply` has not moved the pipeline to the configured cluster, so that its records are not in this cluster.
        ("k", "other", "k", "other"),
    ],
)
def test_changing_commands_require_the_clusters_of_both_files(
    serve: Serve,
    deployed: Deployed,
    lock: Lock,
    kafka: FakeKafka,
    configured: str | None,
    locked: str | None,
    actual: str,
    expected: str | None,
) -> None:
    kafka.cluster = actual
    settings = Kafka(bootstrap_servers="127.0.0.1:1", cluster_id=configured)
    deployment = deployed(connect=service(serve(FakeConnect(cluster=actual))), kafka=settings)
    deployment.write_lock(lock.model_copy(update={"cluster_id": locked, "names": NAMES}))
    if expected is None:
        refuse_foreign_systems(deployment, silent, needs=CLUSTERS, compared=CLUSTERS)
        assert list(foreign_systems(deployment, CLUSTERS)) == []
        return
    with pytest.raises(RefusedError, match=rf"cluster {actual}.* is {expected}"):
        refuse_foreign_systems(deployment, silent, needs=(), compared=CLUSTERS)
    assert len(list(foreign_systems(deployment, CLUSTERS))) == len(CLUSTERS)


@pytest.mark.parametrize("key", [*DATABASE_KEYS, "slot.name", None])
def test_without_a_lock_file_the_connector_must_read_the_database_of_the_environment(
    serve: Serve, deployed: Deployed, key: str | None
) -> None:
    """Another environment can have deployed a connector of the same name to the same workers."""
    config = dict(deployed().render(None))
    fake = FakeConnect(configs={NAME: config | ({key: "other"} if key else {})}, states={NAME: "RUNNING"})
    deployment = deployed(connect=service(serve(fake)))
    found = list(foreign_systems(deployment, ["connect"]))
    assert [key in problem and "other" in problem for problem in found if key] == [True] * (key is not None)


def test_without_a_lock_file_the_connector_must_belong_to_the_pipeline(serve: Serve, deployed: Deployed) -> None:
    config = {**deployed().render(None), "outboxkit.pipeline": "other"}
    deployment = deployed(connect=service(serve(FakeConnect(configs={NAME: config}, states={NAME: "RUNNING"}))))
    [problem] = foreign_systems(deployment, ["connect"])
    assert "has outboxkit.pipeline other, not library" in problem


def test_without_a_lock_file_only_first_commands_change_a_system(
    serve: Serve, deployed: Deployed, kafka: FakeKafka
) -> None:
    deployment = deployed(connect=service(serve(FakeConnect(cluster=kafka.cluster))))
    for needs in (("connect",), ("postgres",), ()):
        with pytest.raises(RefusedError, match=r"library\.fixed\.lock\.json does not exist"):
            refuse_foreign_systems(deployment, silent, needs=needs, compared=CLUSTERS)
        refuse_foreign_systems(deployment, silent, needs=needs, compared=CLUSTERS, is_first=True)


@pytest.mark.parametrize(("prefix", "is_refused"), [("another", True), ("library", False)])
def test_a_recovery_needs_the_lock_file_of_its_own_pipeline(
    serve: Serve, deployed: Deployed, lock: Lock, prefix: str, is_refused: bool
) -> None:
    """A copied pipeline file can have the name of the first file. A renamed connector has the same prefix."""
    assert lock.source is not None
    config = {"slot.name": "earlier", "topic.prefix": prefix}
    deployment = deployed(connect=service(serve(FakeConnect(configs={"first": config}, states={"first": "RUNNING"}))))
    earlier = lock.model_copy(update={"source": lock.source.model_copy(update={"slot": "earlier"})})
    refuse_lock_of_other_pipeline(deployment, lock)
    if is_refused:
        with pytest.raises(RefusedError, match="another pipeline"):
            refuse_lock_of_other_pipeline(deployment, earlier)
    else:
        refuse_lock_of_other_pipeline(deployment, earlier)


@pytest.mark.parametrize("key", ["outboxkit.pipeline", "slot.name", "topic.prefix", *DATABASE_KEYS, None])
def test_with_a_lock_file_the_connector_must_belong_to_its_pipeline(
    serve: Serve, deployed: Deployed, lock: Lock, key: str | None
) -> None:
    """The name of the connector can come from an option such as `--set connector.name=...`."""
    config = {**deployed().render(lock), "outboxkit.pipeline": "library"}
    fake = FakeConnect(configs={NAME: config | ({key: "other"} if key else {})}, states={NAME: "RUNNING"})
    deployment = deployed(connect=service(serve(fake)))
    deployment.write_lock(lock.model_copy(update={"cluster_id": None}))
    found = list(foreign_systems(deployment, ["connect"]))
    assert [key in problem and "other" in problem for problem in found if key] == [True] * (key is not None)


@pytest.mark.parametrize("key", [*NAME_KEYS, *DATABASE_KEYS, None])
def test_names_must_be_those_of_the_last_apply(deployed: Deployed, lock: Lock, key: str | None) -> None:
    """A name can come from an option such as `--set source.publication=...`."""
    deployment = deployed()
    config = deployment.render(lock) | ({key: "other"} if key else {})
    applied = lock.model_copy(update={"names": names_of(config)})
    if key is None:
        refuse_unapplied_names(deployment, applied)
        return
    with pytest.raises(RefusedError, match=f"{key} is .* in the files, but 'other' in lock file"):
        refuse_unapplied_names(deployment, applied)
    if key in DATABASE_KEYS:  # `recover` is for replaced databases
        refuse_unapplied_names(deployment, applied, NAME_KEYS)


NAMES = {"slot.name": "library_outbox"}
OTHER_NAMES = {"topic.prefix": "shop", "slot.name": "s", "publication.name": "p"}
OWNED = {"connector.class": "io.debezium.connector.postgresql.PostgresConnector", "outboxkit.pipeline": "shop"}


@pytest.mark.usefixtures("database", "kafka")
@pytest.mark.parametrize(
    ("name", "changes", "found"),
    [
        (NAME, {}, "belongs to pipeline 'shop'"),
        (
            "shop",
            {"slot.name": "s", "publication.name": "p"},
            "topic.prefix 'library' is also used by connector 'shop'",
        ),
        ("shop", {"topic.prefix": "shop", "slot.name": "s"}, "publication.name 'library_outbox'"),
        ("shop", {"topic.prefix": "shop", "publication.name": "p"}, "slot.name 'library_outbox'"),
        ("shop", OTHER_NAMES, "topic 'library.author' is also used by connector 'shop'"),
        ("shop", OTHER_NAMES | {"transforms": ""}, None),
    ],
)
def test_no_plan_uses_objects_of_another_pipeline(
    serve: Serve, deployed: Deployed, lock: Lock, name: str, changes: dict[str, str], found: str | None
) -> None:
    """`apply --only postgres` must not write a lock file with which `destroy` deletes the objects."""
    fake = FakeConnect(states={name: "RUNNING"})
    fake.configs = {name: {**deployed().render(None), **OWNED, **changes}}
    deployment = deployed(connect=service(serve(fake)))
    deployment.write_lock(lock)
    if found is None:
        refuse_other_owners(deployment)
        return
    with pytest.raises(RefusedError, match=re.escape(found)):
        refuse_other_owners(deployment)
    for only in (["postgres"], ["kafka"], ["registry"], []):
        with pytest.raises(RefusedError, match=re.escape(found)):
            make_plan(deployment, only=only)


def test_registry_must_be_that_of_the_last_apply(deployed: Deployed, lock: Lock) -> None:
    refuse_other_registry(deployed(), lock)
    with pytest.raises(RefusedError, match=r"http://other.* in lock file"):
        refuse_other_registry(deployed(), lock.model_copy(update={"registry_url": "http://other:8081"}))


def test_topics_must_be_in_the_lock_file(deployed: Deployed, lock: Lock, kafka: FakeKafka) -> None:
    deployment, topic = deployed(), LockedTopic(id="1", partitions=1)
    for name, count in (("library.dead-letter", 0), ("another.dead-letter", 1)):
        deployment.write_lock(lock.model_copy(update={"cluster_id": kafka.cluster, "topics": {name: topic}}))
        assert len(list(foreign_systems(deployment, ["kafka"]))) == count


@pytest.mark.parametrize(
    ("missing", "needs"),
    [
        ({"source": None, "database": None}, "postgres"),
        ({"cluster_id": None}, "kafka"),
        ({"topics": {}}, "kafka"),
        ({"cluster_id": None}, "connect"),
        ({"names": {}}, "connect"),
    ],
)
@pytest.mark.usefixtures("database")
def test_a_system_that_the_lock_file_does_not_record_is_not_changed(
    serve: Serve, deployed: Deployed, lock: Lock, kafka: FakeKafka, missing: dict[str, object], needs: System
) -> None:
    """An apply with --only, or an interrupted one, leaves such a lock file."""
    deployment = deployed(connect=service(serve(FakeConnect(cluster=kafka.cluster))))
    names = names_of(deployment.render(lock))
    complete = lock.model_copy(update={"cluster_id": kafka.cluster, "names": names})
    deployment.write_lock(complete)
    refuse_foreign_systems(deployment, silent, needs=(needs,))
    deployment.write_lock(complete.model_copy(update=missing))
    with pytest.raises(RefusedError, match="does not record"):
        refuse_foreign_systems(deployment, silent, needs=(needs,))
    refuse_foreign_systems(deployment, silent, needs=(needs,), is_first=True)


@pytest.mark.usefixtures("database", "kafka")
@pytest.mark.parametrize(
    ("recorded", "message"),
    [
        ({"prefix": "another"}, "the prefix is 'library', but 'another'"),
        ({"database": {"name": "another"}}, "the database is 'library', but the lock file has 'another'"),
        ({"database": {"table": "public.another"}}, "source.table is .*, but public.another"),
        ({"source": {"slot": "another"}}, "source.slot is library_outbox, but another"),
    ],
)
def test_names_are_compared_without_a_connector(
    deployed: Deployed, lock: Lock, recorded: dict[str, Any], message: str
) -> None:
    """A pipeline that has only a relay has no connector config in the lock file."""
    deployment = deployed()
    assert list(foreign_systems(deployment, ["postgres", "kafka"])) == []
    update = {
        key: getattr(lock, key).model_copy(update=value) if isinstance(value, dict) else value
        for key, value in recorded.items()
    }
    deployment.write_lock(lock.model_copy(update=update))
    [problem] = foreign_systems(deployment, ["postgres", "kafka"])
    assert re.search(message, problem)


def test_unreachable_system_is_reported_unless_the_command_needs_it(
    deployed: Deployed, lock: Lock, kafka: FakeKafka
) -> None:
    deployment, messages = deployed(), list[str]()
    deployment.write_lock(lock.model_copy(update={"cluster_id": kafka.cluster, "names": NAMES}))
    refuse_foreign_systems(deployment, messages.append, needs=("kafka",), compared=CLUSTERS)
    assert [deployment.connect.url in message for message in messages] == [True]
    with pytest.raises(UnreachableError):
        refuse_foreign_systems(deployment, silent, needs=("connect",), compared=CLUSTERS)


def test_rejected_request_is_treated_like_a_missing_response(
    deployed: Deployed, lock: Lock, kafka: FakeKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise `outbox status` would not report the other systems."""
    deployment, messages = deployed(), list[str]()
    deployment.write_lock(lock.model_copy(update={"cluster_id": kafka.cluster}))

    def reject() -> str:
        raise RejectedError("not authorized")

    monkeypatch.setattr(kafka, "cluster_id", reject)
    assert list(foreign_systems(deployment, ["kafka"])) == []
    refuse_foreign_systems(deployment, messages.append, needs=(), compared=["kafka"])
    assert messages == ["not compared with the lock file: not authorized"]
    with pytest.raises(RejectedError):
        refuse_foreign_systems(deployment, silent, needs=["kafka"], compared=["kafka"])


OWN = "outbox-kit: pipeline library, environment fixed, prefix old, slot old"


@pytest.mark.parametrize(
    ("comment", "is_foreign"),
    [
        (None, False),
        ("by hand", False),
        (OWN, False),
        (f"{OWN}, cluster cluster-1", False),
        (f"{OWN}, cluster cluster-1; do not drop", False),
        (f"{OWN}, cluster another", True),
        (f"{OWN}, cluster another (owner: books)", True),
        (OWN.replace("fixed", "production"), True),
        (OWN.replace("library", "shop"), True),
    ],
)
def test_the_mark_of_another_deployment_is_foreign(
    deployed: Deployed, lock: Lock, database: FakePostgres, kafka: FakeKafka, comment: str | None, is_foreign: bool
) -> None:
    """A copy of a server's files has the same system identifier, slot and publication oid."""
    deployment = deployed()
    deployment.write_lock(lock.model_copy(update={"cluster_id": kafka.cluster}))
    assert database.actual.publication is not None
    database.actual = replace(database.actual, publication={**database.actual.publication, "comment": comment})
    assert len(list(foreign_systems(deployment, ["postgres"]))) == is_foreign
    found = adoptions(deployment, deployment.lock(), ["postgres"], database.actual, {})
    assert [change.kind for change in found] == ["publication"] * is_foreign


@pytest.mark.usefixtures("kafka")
def test_a_mark_with_a_cluster_is_foreign_while_the_own_cluster_is_not_known(
    deployed: Deployed, lock: Lock, database: FakePostgres
) -> None:
    """The first apply had --only postgres, and Kafka did not respond."""
    deployment = deployed()
    deployment.write_lock(lock.model_copy(update={"cluster_id": None}))
    assert database.actual.publication is not None
    publication = {**database.actual.publication, "comment": f"{OWN}, cluster another"}
    database.actual = replace(database.actual, publication=publication)
    assert len(list(foreign_systems(deployment, ["postgres"]))) == 1
    found = adoptions(deployment, deployment.lock(), ["postgres"], database.actual, {})
    assert [change.kind for change in found] == ["publication"]


@pytest.mark.parametrize(
    ("port", "found", "is_refused"),
    [
        (None, None, False),
        (1, ("1", "library"), False),
        (1, ("2", "library"), True),
        (1, ("1", "other"), True),
        (1, UnreachableError("only the workers can reach it"), False),
    ],
)
def test_the_address_of_the_connector_leads_to_the_same_database(
    deployed: Deployed, monkeypatch: pytest.MonkeyPatch, port: int | None, found: object, is_refused: bool
) -> None:
    deployment = deployed()
    source = deployment.environment.source
    connector = source.connector.model_copy(update={"host": None, "port": port})
    changed = source.model_copy(update={"connector": connector})
    deployment = replace(deployment, environment=deployment.environment.model_copy(update={"source": changed}))

    def identity(database: SourceDatabase) -> tuple[str, str]:
        if database.port != port:
            return "1", "library"
        if isinstance(found, Exception):
            raise found
        return cast(tuple[str, str], found)

    monkeypatch.setattr("outbox_kit.deployment.identity._identity", identity)
    with pytest.raises(RefusedError, match="leads to database") if is_refused else nullcontext():
        refuse_other_connector_address(deployment)


def test_the_address_in_a_template_leads_to_the_same_database(
    deployed: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment = deployed()
    config = {**deployment.render_without_schemas(deployment.lock()), "database.port": "1"}
    monkeypatch.setattr(Deployment, "render_without_schemas", lambda *_: config)
    monkeypatch.setattr("outbox_kit.deployment.identity._identity", lambda database: (str(database.port), "library"))
    with pytest.raises(RefusedError, match="system identifier 1"):
        refuse_other_connector_address(deployment)
