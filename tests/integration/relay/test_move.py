"""The move from the connector to the relay and back (docs/relay-migration.md) while a service writes."""

from __future__ import annotations

import json
import signal
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import psycopg
import pytest
from psycopg.types.json import Jsonb
from tests.integration.relay.conftest import RelayProcess, relay_once
from tests.integration.support import Deploy, decode, headers, in_process, records

from outbox_events.errors import RefusedError
from outbox_events.waiting import Observation, wait_for
from outbox_kit.deployment import Deployment
from outbox_kit.operations import lifecycle
from outbox_kit.results import silent

ITEMS, TABLE, TOPIC = "public.switched_item", "public.switched_event", "switched.item"
COUNT = 12
SCHEMA = {
    "type": "record",
    "name": "Item",
    "fields": [{"name": "id", "type": "string"}, {"name": "version", "type": "long"}],
}
QUERY = f"""
    select id::text as aggregate_id, jsonb_build_object('id', id::text, 'version', version) as payload
    from {ITEMS} where id = any(:keys)"""
Versions = dict[str, int]


@pytest.fixture
def switched(deploy: Deploy, project: Path, source_dsn: str) -> Deployment:
    (project / "schemas" / "switched.avsc").write_text(json.dumps(SCHEMA))
    with psycopg.connect(source_dsn) as connection:
        connection.execute(f"create table {ITEMS} (id bigint primary key, version bigint not null)")
        connection.execute(f"insert into {ITEMS} select n, 0 from generate_series(1, {COUNT}) n")
    backfill = {"table": ITEMS, "key": "id", "query": QUERY}
    return deploy(
        "switched", aggregates={"item": {"schema": "schemas/switched.avsc", "partitions": 2, "backfill": backfill}}
    )


@contextmanager
def writing(dsn: str) -> Iterator[None]:
    """Change one item after another until the block ends. Each change and its outbox row are in one transaction."""
    stop, failed = Event(), list[Exception]()

    def write() -> None:
        try:
            with psycopg.connect(dsn, autocommit=True) as connection:
                number = 0
                while not stop.wait(0.01):
                    number = number % COUNT + 1
                    change(connection, number)
        except psycopg.Error as error:
            failed.append(error)

    thread = Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert failed == []


def change(connection: psycopg.Connection, number: int) -> None:
    with connection.transaction():
        update = f"update {ITEMS} set version = version + 1 where id = %s returning version"
        version = connection.execute(update, (number,)).fetchall()[0][0]
        columns = "aggregate_type, aggregate_id, event_type, payload"
        parameters = (str(number), Jsonb({"id": str(number), "version": version}))
        connection.execute(f"insert into {TABLE} ({columns}) values ('item', %s, 'Changed', %s)", parameters)


@pytest.mark.long
def test_each_consumer_has_the_newest_states_after_a_move_in_both_directions(
    switched: Deployment, relay_process: Callable[..., RelayProcess], source_dsn: str
) -> None:
    run = in_process(switched)
    with writing(source_dsn):
        wait_epoch(switched, "0001")
        with pytest.raises(RefusedError):
            relay_once(switched)  # the connector runs
        lifecycle.stop(switched, silent)
        with pytest.raises(RefusedError):
            relay_once(switched)  # the table contains rows that the connector has sent
        delete_delivered(switched, source_dsn)
        relay = relay_process(switched)
        wait_epoch(switched, "0002")
        with pytest.raises(RefusedError):
            lifecycle.resume(switched, silent)
        run("backfill", "--acknowledge", "item")
        run("destroy", "--drop-slot", "--confirm", "switched@local")
        run("apply", "--only", "kafka", "--only", "registry", "--yes")
        lock = switched.lock()
        assert lock is not None
        assert not lock.has_connector
        pending = {name for name, entry in lock.topics.items() if entry.pending_backfill}
        assert not pending, "the relay sends the states"

        relay.signal(signal.SIGTERM)
        assert relay.wait() == 0
        run("apply", "--recover", "--yes")
        run("backfill", "--restart")
        wait_epoch(switched, "0003")
    wait_for("the newest states", lambda: newest_states(switched, source_dsn), seconds=60)
    sent = versions_of(switched)
    with psycopg.connect(source_dsn) as connection:
        kept = connection.execute(f"select aggregate_id, (payload->>'version')::int from {TABLE}").fetchall()
    for key, last in committed(source_dsn).items():
        applied = [version for _, version in sent[key]]
        assert applied == sorted(applied), "no state is replaced by an older one"
        delivered = {*all_versions(switched)[key], *(version for owner, version in kept if owner == key)}
        assert delivered == {*range(1, last + 1)}, "a row that nobody has sent is still in the table"


def delete_delivered(deployment: Deployment, dsn: str) -> None:
    """Delete the rows whose records a consumer has read."""
    ids = [headers(message)["event_id"] for message in records(deployment, TOPIC, 2)]
    with psycopg.connect(dsn) as connection:
        connection.execute(f"delete from {TABLE} where id = any(%s::uuid[])", (ids,))


def wait_epoch(deployment: Deployment, epoch: str) -> None:
    """Wait until every item has a record of this source epoch."""

    def poll() -> Observation[bool]:
        found = records(deployment, TOPIC, 2)
        keys = {message.key() for message in found if headers(message)["source_sequence"].startswith(epoch)}
        return Observation(True if len(keys) == COUNT else None, f"{len(keys)} items of epoch {epoch}")

    wait_for(f"records of epoch {epoch}", poll, seconds=60)


def versions_of(deployment: Deployment) -> dict[str, list[tuple[str, int]]]:
    """Return the states that a consumer applies, by item. It applies a record only if its source_sequence is higher."""
    applied: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for message in sorted(records(deployment, TOPIC, 2), key=lambda message: (message.partition(), message.offset())):
        key, sequence = str(message.key(), "utf-8"), headers(message)["source_sequence"]  # type: ignore[arg-type]
        if not applied[key] or sequence > applied[key][-1][0]:
            applied[key].append((sequence, decode(deployment, "item", message)["version"]))
    return applied


def all_versions(deployment: Deployment) -> dict[str, set[int]]:
    found: dict[str, set[int]] = defaultdict(set)
    for message in records(deployment, TOPIC, 2):
        found[str(message.key(), "utf-8")].add(decode(deployment, "item", message)["version"])  # type: ignore[arg-type]
    return found


def committed(dsn: str) -> Versions:
    with psycopg.connect(dsn) as connection:
        return dict(connection.execute(f"select id::text, version from {ITEMS}").fetchall())


def newest_states(deployment: Deployment, dsn: str) -> Observation[bool]:
    newest = {key: states[-1][1] for key, states in versions_of(deployment).items()}
    return Observation(True if newest == committed(dsn) else None, str(newest))
