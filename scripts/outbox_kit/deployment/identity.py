"""Decide whether the systems in the environment file are those to which the pipeline was deployed.

Every command that changes a system calls refuse_foreign_systems() or, if it also accepts a first deployment or a
replaced database, refuse_wrong_cluster() and the checks of `postgres.state`. Commands that only read call
foreign_systems(), and warn.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress

from psycopg.sql import SQL, Identifier, Literal

from outbox_events.errors import OutboxError, RefusedError, UnreachableError
from outbox_kit.connect.config_diff import PIPELINE_KEY, with_fingerprint
from outbox_kit.connect.conflicts import refuse_duplicates
from outbox_kit.connect.connector_config import parse_int
from outbox_kit.deployment.deployment import Deployment
from outbox_kit.pipeline import Lock, SourceDatabase
from outbox_kit.postgres import client as postgres_client
from outbox_kit.postgres import ddl
from outbox_kit.postgres.client import Connection, Row
from outbox_kit.postgres.replication_slot import Slot, read_slot
from outbox_kit.postgres.state import ActualDatabase
from outbox_kit.results import Reporter
from outbox_kit.results.changes import System
from outbox_kit.results.repair_commands import APPLY_RECOVER_HINT, NEW_DATABASE_HINT, RECOVER_HINT

CLUSTERS: tuple[System, ...] = ("kafka", "connect")
IDENTIFIED_SYSTEMS: tuple[System, ...] = ("postgres", *CLUSTERS)
# Time limit for each request, because a system that the command does not need can be down.
READ_LIMIT_S = 5
DATABASE_HINT = (
    "check -e, source.host, source.database, --set and the variables OUTBOX__...; if only the comment of the "
    f"publication is wrong, `outbox plan` shows how to adopt it; {NEW_DATABASE_HINT}, or, for a pipeline that has only "
    "a relay, `outbox apply --only kafka --only registry`"
)
DATABASE_KEYS = ("database.hostname", "database.port", "database.dbname")
NAME_KEYS = ("slot.name", "publication.name", "topic.prefix", "table.include.list")
IDENTITY_KEYS = (*NAME_KEYS, *DATABASE_KEYS)
RECOVERED_KEYS = ("slot.name", "publication.name")
"""Names with which the connector starts at another position of the WAL."""
ADDRESSES_HINT = (
    "check -p and -e, or correct connector.name, the addresses or kafka.cluster_id in the files; if the files are "
    "correct, run `outbox plan`, which shows how to change the connector; nothing was changed"
)


def refuse_foreign_systems(
    deployment: Deployment,
    progress: Reporter,
    *,
    needs: Collection[System],
    compared: Collection[System] = IDENTIFIED_SYSTEMS,
    is_first: bool = False,
    apply_hint: str = "",
) -> None:
    """Raise RefusedError if the database or a cluster is not the one in the environment file and in the lock file.

    If a `compared` system cannot be identified, raise the error if the command `needs` the system, else report it.
    Without a lock file, only a command that `is_first` for a pipeline is accepted, because topics and connector can
    belong to another pipeline or environment. `apply_hint` names the command that records the systems.
    """
    lock = deployment.lock()
    if lock is None and not is_first:
        message = f"lock file {deployment.lock_file} does not exist: the objects may belong to another environment"
        hint = "check -p and -e, or restore the lock file from version control"
        if set(needs) == {"connect"}:  # a recovery would start the connector
            url = f"{deployment.connect.url}/connectors/{deployment.pipeline.connector.name}"
            raise RefusedError(message, f"{hint}; to stop the connector in an emergency, run `curl -X PUT {url}/stop`")
        raise RefusedError(message, f"{hint}; if the file is lost, {APPLY_RECOVER_HINT}")

    def report(system: System, error: OutboxError) -> None:
        if system in needs:
            raise error
        progress(f"not compared with the lock file: {error.message}")

    for problem in _missing_records(deployment, lock, needs) if lock and not is_first else ():
        raise RefusedError(problem, f"check -p and -e, or {apply_hint or _apply_hint(lock, needs)}")
    if "postgres" in compared:
        refuse_unapplied_names(deployment, lock)
    for system in compared:
        for problem in foreign_systems(deployment, [system], report):
            raise RefusedError(problem, DATABASE_HINT if system == "postgres" else ADDRESSES_HINT)


def _missing_records(deployment: Deployment, lock: Lock, needs: Collection[System]) -> Iterator[str]:
    """Describe the systems in `needs` that the lock file does not record, so that nothing can be compared.

    An apply that was interrupted, or that had --only, leaves such a lock file.
    """
    has_topics = lock.cluster_id is not None and deployment.pipeline.dead_letter_topic in lock.topics
    if "postgres" in needs and lock.system_identifier is None:
        yield f"lock file {deployment.lock_file} does not record the database of this pipeline"
    if "kafka" in needs and not has_topics:
        yield f"lock file {deployment.lock_file} does not record the topics of this pipeline"
    # An apply that was interrupted records the names of the connector only at its end.
    if "connect" in needs and (lock.cluster_id is None or not (lock.names or lock.unfinished)):
        yield f"lock file {deployment.lock_file} does not record the connector of this pipeline"


def _apply_hint(lock: Lock | None, needs: Collection[System] = ()) -> str:
    """Return the hint to apply the pipeline. An apply for a pipeline that has only a relay must not create a slot."""
    has_only_relay = lock is not None and not lock.has_connector and bool(lock.topics) and "connect" not in needs
    return f"run `outbox apply{' --only kafka --only registry' if has_only_relay else ''}`"


def foreign_systems(
    deployment: Deployment,
    systems: Collection[System],
    report: Callable[[System, OutboxError], None] = lambda _system, _error: None,
) -> Iterator[str]:
    """Describe the `systems` that are not those of the environment file and the lock file.

    If a system cannot be identified, call `report`. By default, this is ignored, because the command reports it.
    """
    lock = deployment.lock()
    with deployment.bounded(READ_LIMIT_S) as bounded_deployment:
        for system in systems:
            try:
                yield from _problems(bounded_deployment, lock, system)
            except OutboxError as error:
                report(system, error)


def refuse_wrong_cluster(
    deployment: Deployment, lock: Lock | None, systems: Collection[System], *, accepts_new: bool = True
) -> str | None:
    """Return the cluster id that the systems report; None if neither Kafka nor Connect is in `systems`.

    The expected ids are kafka.cluster_id in the environment file, and the id that the first apply recorded. If
    `accepts_new`, only the first one is compared, so that a pipeline can be deployed to a new cluster. Raises
    UnreachableError. Raises RefusedError if a reported id is not expected, or if the two reported ids differ.
    """
    selected = [system for system in CLUSTERS if system in systems]
    reported = {_address(deployment, system): _cluster_id(deployment, system) for system in selected}
    expected = list(_expected_ids(deployment, lock))[: 1 if accepts_new else None]
    for address, cluster_id in reported.items():
        for problem in _differences(address, cluster_id, expected):
            raise RefusedError(problem, ADDRESSES_HINT)
    if len(set(reported.values())) > 1:
        addresses = ", ".join(f"{address} to {cluster_id}" for address, cluster_id in reported.items())
        raise RefusedError(f"Kafka and Connect belong to different clusters: {addresses}", ADDRESSES_HINT)
    return next(iter(reported.values()), None)


def refuse_other_database(lock: Lock | None, actual: ActualDatabase) -> None:
    """Raise RefusedError if the lock file has another system identifier, or the slot belongs to another database.

    A lock file that was written by `destroy` also has a system identifier.
    """
    problems = [
        *_database_differences(lock, actual.system_identifier, actual.database),
        *_slot_differences(actual.slot, actual.database),
    ]
    for problem in problems:
        raise RefusedError(problem, "correct source.host, source.port or source.database; nothing was changed")


def refuse_unapplied_names(
    deployment: Deployment,
    lock: Lock | None,
    keys: Collection[str] = IDENTITY_KEYS,
    apply_hint: str = "run `outbox apply`",
) -> None:
    """Raise RefusedError if one of `keys` of the connector config differs between the files and the last apply.

    `apply_hint` names the command that applies a new name.
    """
    for key, problem in _unapplied(deployment, lock, keys):
        steps = APPLY_RECOVER_HINT if key in RECOVERED_KEYS else apply_hint  # `apply` refuses a changed slot
        hint = f"check -p, -e, --set and the variables OUTBOX__...; if the change is intended: {steps}"
        raise RefusedError(problem, f"{hint}; after a failover or migration: {RECOVER_HINT}")


def refuse_lock_of_other_pipeline(deployment: Deployment, lock: Lock) -> None:
    """Raise RefusedError if another pipeline's connector reads the slot in the lock file, which has the same name.

    A connector with the same topic prefix is this pipeline's connector under an earlier name.
    """
    slot, pipeline = lock.source.slot if lock.source else None, deployment.pipeline
    if slot in (None, pipeline.source.slot):
        return
    for name, connector in deployment.connect.listed_connectors().items():
        if connector.config.get("slot.name") == slot and connector.config.get("topic.prefix") != pipeline.prefix:
            raise RefusedError(
                f"connector {name!r} reads slot {slot!r} of the lock file, so this file belongs to another pipeline",
                "give this pipeline another `name`, because the lock file has the name of the pipeline",
            )


def refuse_other_owners(deployment: Deployment, *, only_pipelines: bool = False) -> None:
    """Raise RefusedError if another connector has the name, slot, publication, prefix or a topic of this pipeline's.

    With `only_pipelines`, connectors of no pipeline are ignored, because `adopt` takes over their slot and publication.
    """
    connectors = {
        name: connector
        for name, connector in deployment.connect.listed_connectors().items()
        if PIPELINE_KEY in connector.config or not only_pipelines
    }
    name, pipeline = deployment.pipeline.connector.name, deployment.pipeline.name
    owner = connectors[name].config.get(PIPELINE_KEY, pipeline) if name in connectors else pipeline
    if owner != pipeline:
        hint = f"set another connector.name, or set `name: {owner}` again if the pipeline was renamed"
        raise RefusedError(f"connector {name!r} at {deployment.connect.url} belongs to pipeline {owner!r}", hint)
    config = with_fingerprint(pipeline, deployment.render_without_schemas(deployment.lock()))
    refuse_duplicates(name, config, connectors)


def refuse_other_registry(deployment: Deployment, lock: Lock | None) -> None:
    """Raise RefusedError if the last apply used a schema registry with another address."""
    recorded, url = lock.registry_url if lock else None, deployment.registry.url
    if recorded not in (None, url):
        message = f"registry.url is {url}, but {recorded} in lock file {deployment.lock_file}; nothing was deleted"
        raise RefusedError(message, "check -e and --set; if the registry has a new address, run `outbox apply`")


def refuse_foreign_database(deployment: Deployment, *, is_new: bool) -> None:
    """Raise RefusedError if the database is not that of the lock file, or the slot decodes another database.

    If the database `is_new`, accept another one. A slot can be dropped from any database of its server.
    """
    slot = deployment.pipeline.source.slot
    with postgres_client.connected(deployment.environment.source) as connection:
        name, identifier = _database(connection), postgres_client.read_system_identifier(connection)
        lock = deployment.lock()
        for problem in () if is_new else _database_differences(lock, identifier, name):
            raise RefusedError(problem, f"check source.host and source.database; {NEW_DATABASE_HINT}")
        if not is_new:
            refuse_foreign_publication(deployment, lock, _publication(deployment, connection))
        for problem in _slot_differences(read_slot(connection, slot), name):
            steps = f"run `outbox stop`, `select pg_drop_replication_slot('{slot}')`, `outbox recover --new-database`"
            raise RefusedError(problem, f"correct source.database; if this database replaced the other: {steps}")


def refuse_other_connector_address(deployment: Deployment) -> None:
    """Raise RefusedError if the connector config leads to another database than source.host, so to that of other rows.

    An address that only the workers can reach or resolve, or at which the login of `source.admin` fails, is not
    compared.
    """
    source = deployment.environment.source
    config = deployment.render_without_schemas(deployment.lock())
    host, port, name = (config.get(key) for key in DATABASE_KEYS)
    address = {"host": host, "port": parse_int(port, source.port), "database": name}
    connector = source.model_copy(update={key: value for key, value in address.items() if value is not None})
    is_same = (connector.host, connector.port, connector.database) == (source.host, source.port, source.database)
    if is_same or any("${" in str(config.get(key)) for key in DATABASE_KEYS):  # the workers resolve a placeholder
        return
    own = _identity(source)
    try:
        found = _identity(connector)
    except OutboxError:
        return
    if found != own:
        message = f"the connector config leads to database {found[1]!r} of the server with system identifier {found[0]}"
        hint = "correct source.connector.host and port, or the template of the connector"
        raise RefusedError(f"{message}, but source.host to {own[1]!r} of {own[0]}", hint)


def _identity(database: SourceDatabase) -> tuple[str, str]:
    with postgres_client.connected(database, seconds=READ_LIMIT_S) as connection:
        return postgres_client.read_system_identifier(connection), _database(connection)


def refuse_foreign_mark(deployment: Deployment, lock: Lock) -> None:
    """Raise RefusedError if the publication has the mark of another deployment. Ignore a database that is down."""
    publication = None
    with (
        suppress(OutboxError),
        postgres_client.connected(deployment.environment.source, seconds=READ_LIMIT_S) as opened,
    ):
        publication = _publication(deployment, opened)
    refuse_foreign_publication(deployment, lock, publication)


def refuse_foreign_publication(deployment: Deployment, lock: Lock | None, publication: Row | None) -> None:
    """Raise RefusedError if the publication has the mark of another deployment, whose connector has the same name."""
    for problem in _mark_differences(deployment, lock, publication):
        name, mark = Identifier(deployment.pipeline.source.publication), Literal(_own_mark(deployment, lock))
        statement = SQL("comment on publication {} is {}").format(name, mark).as_string(None)
        hint = (
            "check -p, -e and source.host: the comment names the deployment to which the publication belongs; if only"
        )
        raise RefusedError(problem, f"{hint} the comment is wrong, run `{statement}`")


def refuse_other_prefix(deployment: Deployment, lock: Lock | None) -> None:
    """Raise RefusedError if the prefix is not that of the last apply, because --only would change a part of it."""
    for problem in prefix_differences(deployment, lock):
        raise RefusedError(
            problem, "check -p, --set and the variables OUTBOX__..., or run `outbox apply` without --only"
        )


def names_of(config: Mapping[str, str]) -> dict[str, str]:
    """Return the names and addresses in a connector config, which the lock file records."""
    return {key: config[key] for key in IDENTITY_KEYS if key in config}


def prefix_differences(deployment: Deployment, lock: Lock | None) -> Iterator[str]:
    """Describe a prefix that the last apply did not record."""
    prefix, recorded = deployment.pipeline.prefix, lock.prefix if lock else None
    if recorded not in (None, prefix):
        yield f"the prefix is {prefix!r}, but {recorded!r} in lock file {deployment.lock_file}"


def _unapplied(deployment: Deployment, lock: Lock | None, keys: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield the key of each name or address that differs between the files and the last apply, and a description."""
    applied = lock.names if lock is not None else {}
    rendered = deployment.render(lock) if applied else {}
    for key in keys:
        if applied and rendered.get(key) != applied.get(key):
            recorded = f"{applied.get(key)!r} in lock file {deployment.lock_file}"
            yield key, f"{key} is {rendered.get(key)!r} in the files, but {recorded}"


def _problems(deployment: Deployment, lock: Lock | None, system: System) -> Iterator[str]:
    if system == "postgres":
        yield from (problem for _, problem in _unapplied(deployment, lock, IDENTITY_KEYS))
        if lock is not None and lock.system_identifier is not None:
            yield from _table_differences(deployment, lock)
            with postgres_client.connected(deployment.environment.source, seconds=READ_LIMIT_S) as connection:
                name, slot = _database(connection), read_slot(connection, deployment.pipeline.source.slot)
                yield from _database_differences(lock, postgres_client.read_system_identifier(connection), name)
                yield from _slot_differences(slot, name)
                yield from _mark_differences(deployment, lock, _publication(deployment, connection))
        return
    if system == "connect":
        with suppress(UnreachableError):  # the command reports it
            yield from connector_differences(deployment, lock)
    else:  # a connector can also be stopped before a change of its prefix is applied
        yield from prefix_differences(deployment, lock)
    topic = deployment.pipeline.dead_letter_topic
    if system == "kafka" and lock is not None and lock.topics and topic not in lock.topics:
        yield f"topic {topic} is not in the lock file"
    expected = list(_expected_ids(deployment, lock))
    if expected:
        yield from _differences(_address(deployment, system), _cluster_id(deployment, system), expected)


def connector_differences(deployment: Deployment, lock: Lock | None) -> Iterator[str]:
    """Compare the live connector, which can belong to another pipeline or environment, with the files.

    With a lock file, the prefix and the database can be those of the files or of the last apply, so that a connector
    can be stopped before a change is applied.
    """
    name = deployment.pipeline.connector.name
    connector, config = f"connector {name!r} at {deployment.connect.url}", deployment.connect.config(name) or {}
    if not config:
        return
    pipeline, rendered = lock.pipeline if lock else deployment.pipeline.name, deployment.render(lock)
    if config.get(PIPELINE_KEY, pipeline) != pipeline:
        yield f"{connector} has {PIPELINE_KEY} {config[PIPELINE_KEY]}, not {pipeline}"
    keys = {key: {rendered.get(key)} for key in (*DATABASE_KEYS, "slot.name")}
    if lock is not None:
        keys["topic.prefix"] = {rendered.get("topic.prefix"), lock.prefix}
        keys = {key: values | {lock.names[key]} if key in lock.names else values for key, values in keys.items()}
        keys["slot.name"] = {lock.source.slot} if lock.source else keys["slot.name"]
    for key, values in keys.items():
        if config.get(key) not in values:
            expected = " or ".join(sorted(value for value in values if value))
            yield f"{connector} has {key} {config.get(key)}, not {expected}"


def _database_differences(lock: Lock | None, system_identifier: str, name: str) -> Iterator[str]:
    expected = lock.system_identifier if lock else None
    if expected not in (None, system_identifier):
        yield f"the server has system identifier {system_identifier}, but the lock file has {expected}"
    if lock is not None and lock.database is not None and lock.database.name != name:
        yield f"the database is {name!r}, but the lock file has {lock.database.name!r}"


def _table_differences(deployment: Deployment, lock: Lock) -> Iterator[str]:
    """Compare table and slot if no connector config does, for example of a pipeline that has only a relay."""
    source, recorded = deployment.pipeline.source, lock.database
    if recorded is not None and source.uses_table and recorded.table != source.table:
        yield f"source.table is {source.table}, but {recorded.table} in lock file {deployment.lock_file}"
    if lock.source is not None and lock.source.slot != source.slot:
        yield f"source.slot is {source.slot}, but {lock.source.slot} in lock file {deployment.lock_file}"


def _database(connection: Connection) -> str:
    """Return the name of the database, because a connection pooler can have another name for it."""
    return str(postgres_client.read_server(connection)["database"])


def _slot_differences(slot: Slot | None, database: str) -> Iterator[str]:
    """Compare the databases, because a copy of a database on the same server has the same system identifier."""
    if slot is not None and slot.database != database:
        yield f"slot {slot.name!r} decodes database {slot.database!r}, not {database!r}"


def _publication(deployment: Deployment, connection: Connection) -> Row | None:
    return postgres_client.read_publication(connection, deployment.pipeline.source.publication)


def _mark_differences(deployment: Deployment, lock: Lock | None, publication: Row | None) -> Iterator[str]:
    """Compare the mark of the publication, because a copy of a server's files has the same system identifier."""
    comment, cluster_id = (publication or {}).get("comment"), lock.cluster_id if lock else None
    if ddl.is_foreign_mark(comment, deployment.pipeline, deployment.environment, cluster_id):
        name, own_mark = deployment.pipeline.source.publication, _own_mark(deployment, lock)
        yield f"publication {name!r} has the comment {comment!r}, not {own_mark!r}"


def _own_mark(deployment: Deployment, lock: Lock | None) -> str:
    return ddl.publication_mark(deployment.pipeline, deployment.environment, lock.cluster_id if lock else None)


def _differences(address: str, cluster_id: str, expected: Collection[tuple[str, str]]) -> Iterator[str]:
    for expected_id, origin in expected:
        if cluster_id != expected_id:
            yield f"{address} belongs to cluster {cluster_id}, but {origin} is {expected_id}"


def _expected_ids(deployment: Deployment, lock: Lock | None) -> Iterator[tuple[str, str]]:
    """Yield the expected cluster ids, with their origins. kafka.cluster_id is the first."""
    if deployment.environment.kafka.cluster_id is not None:
        yield deployment.environment.kafka.cluster_id, "kafka.cluster_id in the environment file"
    if lock is not None and lock.cluster_id is not None:
        yield lock.cluster_id, f"the cluster of the first apply ({deployment.lock_file.name})"


def _cluster_id(deployment: Deployment, system: System) -> str:
    if system == "kafka":
        return deployment.kafka.cluster_id()
    return str(deployment.connect.worker_info()["kafka_cluster_id"])


def _address(deployment: Deployment, system: System) -> str:
    if system == "kafka":
        return f"kafka.bootstrap_servers ({deployment.environment.kafka.bootstrap_servers})"
    return f"Kafka Connect ({deployment.connect.url})"
