"""Procedures of docs/incidents.md and docs/planned-changes.md. Each incident is caused,
and the commands of its section are run verbatim.

A line must exit with the code that its comment states, or else with 0. The document names the pipeline `library`; the
test replaces the name.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import NAMESPACE_OID, uuid4, uuid5

import psycopg
import pytest
import yaml
from psycopg.types.json import Jsonb
from tests.integration.support import CommandResult, in_process, live_keys, run_remedy, wait_record
from tests.integration.transforms.test_records import book

from outbox_events import emit
from outbox_events.contract.partitioner import partition_of
from outbox_events.waiting import Observation, wait_for
from outbox_kit.cli.options import CommonOptions
from outbox_kit.connect import lifecycle as connect_lifecycle
from outbox_kit.deployment import Deployment, apply, open_deployment
from outbox_kit.kafka.state import desired_topics
from outbox_kit.results import silent
from outbox_kit.results.checks import Check, Status
from outbox_kit.stack import Stack
from outbox_kit.verification import comparison_of, state_checks

NAME, TOPIC = "incidents", "incidents.book"
DOCUMENTS = [Path(__file__).resolve().parents[3] / "docs" / name for name in ("incidents.md", "planned-changes.md")]
BLOCK = re.compile(r"^```sh incident=(\S+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
EXIT_CODE = re.compile(r"#.*exit code (\d)")
COMMAND_BLOCKS: dict[str, str] = dict(
    block for document in DOCUMENTS for block in BLOCK.findall(document.read_text(encoding="utf-8"))
)


@dataclass
class Scenario:
    """The pipeline of this module, with a simulated service."""

    file: Path
    dsn: str
    deployment: Deployment
    partitions: int = 4
    extra: dict[str, object] | None = None

    def write(self, key: str | None = None, payload: object = None, *, row: bool = True) -> tuple[str, str]:
        """Write a business row and an event in one transaction, as the service does. Return the key and event id."""
        key = key or str(uuid4())
        # The key can be any text, but the field `id` of the schema is a UUID.
        state = {**book(str(uuid5(NAMESPACE_OID, key))), **(self.extra or {}), "price": "1.50"}
        with psycopg.connect(self.dsn) as connection:
            if row:
                connection.execute(
                    "insert into incidents_book values (%s, %s) on conflict (id) do update set state = excluded.state",
                    (key, Jsonb(state)),
                )
            event = emit(
                connection,
                aggregate_type="book",
                aggregate_id=key,
                event_type="book_changed",
                payload=payload or state,  # type: ignore[arg-type]
                table="public.incidents_event",
            )
        return key, str(event)

    def wait_delivered(self, event: str) -> None:
        wait_record(self.deployment, TOPIC, self.partitions, event)

    def has_state(self, key: str) -> bool:
        """Return whether the topic has a record of the key that is not a tombstone."""
        return key in live_keys(self.deployment, TOPIC, self.partitions)

    def wait_state(self, key: str, *, live: bool) -> None:
        """Wait until the newest record of the key is a state if `live`, and a tombstone otherwise."""
        wait_for(
            f"{key} to be {'live' if live else 'gone'}",
            lambda: Observation(True if self.has_state(key) is live else None, "not yet"),
            seconds=60,
        )

    def sql(self, statement: str) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(statement)  # type: ignore[call-overload]

    def stop(self) -> None:
        """Stop the connector, and wait until its slot is free."""
        connect_lifecycle.stop(self.deployment.connect, self.deployment.pipeline.connector.name)
        with psycopg.connect(self.dsn, autocommit=True) as connection:

            def poll() -> Observation[bool]:
                row = connection.execute(
                    "select active from pg_replication_slots where slot_name = 'incidents_outbox'"
                ).fetchone()
                return Observation(None if row == (True,) else True, str(row))

            wait_for("the slot to be given up", poll, seconds=30)

    def change(self, edit: Callable[[dict[str, dict[str, dict[str, object]]]], None]) -> None:
        """Edit the pipeline file."""
        data = yaml.safe_load(self.file.read_text())
        edit(data)
        self.file.write_text(yaml.safe_dump(data))


@pytest.fixture(scope="module")
def scenario(stack: Stack, project: Path, make_pipeline: Callable[..., Path], source_dsn: str) -> Iterator[Scenario]:
    """Deploy the pipeline and wait until one book is delivered."""
    del stack
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        connection.execute("create table incidents_book (id text primary key, state jsonb not null)")
        connection.execute("create table incidents_author (like incidents_book including all)")
    source = {"table": "public.incidents_event", "publication": "incidents_outbox", "slot": "incidents_outbox"}
    loads = {
        name: {
            "table": f"public.incidents_{name}",
            "key": "id",
            "query": f"select id as aggregate_id, state as payload from incidents_{name}",
        }
        for name in ("author", "book")
    }
    (project / "schemas" / "incidents.avsc").write_text((project / "schemas" / "book.avsc").read_text())
    aggregates = {
        "author": {"schema": "schemas/author.avsc", "partitions": 1, "backfill": loads["author"]},
        "book": {"schema": "schemas/incidents.avsc", "partitions": 4, "backfill": loads["book"]},
    }
    connector = {"name": f"{NAME}-outbox", "template": "outbox-postgres"}
    file = make_pipeline(NAME, source=source, aggregates=aggregates, connector=connector)
    with open_deployment(file, "local") as deployment:
        apply(deployment, silent)
        actual = Scenario(file, source_dsn, deployment)
        actual.wait_delivered(actual.write()[1])
        yield actual


@pytest.fixture
def run_incident(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[[str], list[CommandResult]]:
    """Return a function that runs the commands of an incident. Environment variables select the pipeline."""
    monkeypatch.setenv("OUTBOX_PIPELINE", str(scenario.file))
    monkeypatch.setenv("OUTBOX_ENVIRONMENT", "local")
    monkeypatch.chdir(tmp_path)

    def lines(incident: str) -> list[CommandResult]:
        done = []
        for line in COMMAND_BLOCKS[incident].splitlines():
            line = line.replace("library", NAME).replace("outbox_event", f"{NAME}_event")  # noqa: PLW2901
            line = line.replace("@production", "@local")  # noqa: PLW2901
            message = shlex.split(line, comments=True)
            if not message:
                continue
            if message[:2] == ["psql", "-c"]:
                scenario.sql(message[2])
                continue
            assert message[0] == "outbox", f"only `outbox` and `psql -c` can be run: {line}"
            code = EXIT_CODE.search(line)
            done.append(in_process()(*message[1:], code=int(code[1]) if code else 0))
        return done

    return lines


RunIncident = Callable[[str], list[CommandResult]]


def test_every_incident_has_a_test() -> None:
    """Check that every incident of the document has a test in this module."""
    tested = set(re.findall(r'run_incident\("([a-z-]+)"\)', Path(__file__).read_text(encoding="utf-8")))
    assert tested == COMMAND_BLOCKS.keys()


def test_dead_letters(scenario: Scenario, run_incident: RunIncident) -> None:
    scenario.write("dead-1", {"no": "book"})
    scenario.wait_delivered(scenario.write()[1])
    assert not scenario.has_state("dead-1")
    done = run_incident("dead-letters")
    assert "payload-invalid" in done[0].stdout
    scenario.wait_state("dead-1", live=True)
    assert "0 dead letters not acknowledged" in done[-1].stderr


def test_slot_lost(scenario: Scenario, run_incident: RunIncident) -> None:
    scenario.stop()
    scenario.sql("select pg_drop_replication_slot('incidents_outbox')")
    lost, _ = scenario.write()
    done = run_incident("slot-lost")
    assert "slot incidents_outbox does not exist" in done[0].stderr
    assert "does not exist" in done[1].stderr
    assert "slot-missing" in done[2].stderr
    scenario.wait_state(lost, live=True)
    scenario.wait_delivered(scenario.write()[1])


def test_wal_filling(scenario: Scenario, run_incident: RunIncident) -> None:
    scenario.stop()
    _, event = scenario.write()
    done = run_incident("wal-filling")
    assert "slot incidents_outbox is not active" in done[0].stderr
    assert re.search(r"retained WAL +\d", done[0].stdout)
    scenario.wait_delivered(event)


def test_failover_and_restore(scenario: Scenario, run_incident: RunIncident) -> None:
    """Change the database in the lock file, which is equivalent to restoring the server."""
    _, before = scenario.write()
    scenario.wait_delivered(before)
    scenario.stop()
    lock = scenario.deployment.lock()
    assert lock is not None
    assert lock.source is not None
    scenario.deployment.write_lock(
        lock.model_copy(update={"source": lock.source.model_copy(update={"system_identifier": "1"})})
    )
    meanwhile, _ = scenario.write()
    done = run_incident("restore")
    assert "system identifier of the database is " in done[1].stderr
    assert "system identifier of the database is " in done[2].stderr
    scenario.wait_state(meanwhile, live=True)
    scenario.wait_delivered(scenario.write()[1])
    raised = scenario.deployment.lock()
    assert raised is not None
    assert raised.source_epoch == lock.source_epoch + 1


def test_two_connectors_on_one_slot(scenario: Scenario, run_incident: RunIncident) -> None:
    scenario.stop()
    lost, _ = scenario.write()
    # Another client confirms rows that this connector never received.
    scenario.sql("select pg_replication_slot_advance('incidents_outbox', pg_current_wal_lsn())")
    done = run_incident("two-readers")
    assert "beyond the offset of connector" in done[0].stderr
    scenario.wait_state(lost, live=True)
    scenario.wait_delivered(scenario.write()[1])


def test_poisoned_config(scenario: Scenario, run_incident: RunIncident) -> None:
    name = scenario.deployment.pipeline.connector.name
    config = scenario.deployment.connect.config(name)
    assert config is not None
    scenario.deployment.connect.update_config(name, {**config, "poll.interval.ms": "77"})
    connect_lifecycle.wait_for_state(scenario.deployment.connect, name)
    done = run_incident("poisoned-config")
    assert "connect.config" in done[0].stdout
    assert "poll.interval.ms" in done[1].stdout
    scenario.wait_delivered(scenario.write()[1])


def wait_failed(scenario: Scenario) -> None:
    name = scenario.deployment.pipeline.connector.name

    def poll() -> Observation[bool]:
        status = scenario.deployment.connect.status(name)
        return Observation(True if connect_lifecycle.has_failed(status) else None, str(status))

    wait_for("the task to fail", poll, seconds=60)


def test_failed_task(scenario: Scenario, run_incident: RunIncident) -> None:
    name = scenario.deployment.pipeline.connector.name
    scenario.sql("alter publication incidents_outbox rename to elsewhere")
    scenario.deployment.connect.restart(name)
    wait_failed(scenario)
    scenario.sql("alter publication elsewhere rename to incidents_outbox")
    done = run_incident("failed-task")
    assert "root cause" in done[0].stdout
    scenario.wait_delivered(scenario.write()[1])


def test_renamed_column(scenario: Scenario, run_incident: RunIncident) -> None:
    rename = "alter table incidents_event rename column {} to {}"
    scenario.sql(rename.format("aggregate_type", "kind"))
    scenario.sql(
        "insert into incidents_event (kind, aggregate_id, event_type, payload) select kind, 'renamed', event_type, "
        "payload from incidents_event where payload is not null limit 1"
    )
    scenario.sql("insert into incidents_book select 'renamed', state from incidents_book limit 1")
    wait_failed(scenario)
    scenario.sql(rename.format("kind", "aggregate_type"))
    done = run_incident("renamed-column")
    assert "no column aggregate_type" in done[0].stdout
    scenario.wait_state("renamed", live=True)
    scenario.wait_delivered(scenario.write()[1])


def test_stuck_aggregates(scenario: Scenario, run_incident: RunIncident) -> None:
    """There is a state without an event, and a record of an aggregate that was deleted without an event."""
    scenario.sql("insert into incidents_book select 'silent', state from incidents_book where id <> 'dead-1' limit 1")
    _, event = scenario.write("ghost", row=False)
    scenario.wait_delivered(event)
    scenario.sql("delete from incidents_event where aggregate_id = 'ghost'")
    done = run_incident("stuck")
    listed = done[0].stdout
    assert re.search(r"book +silent +no record on the topic", listed)
    assert re.search(r"book +ghost +a record on the topic, but no aggregate", listed)
    scenario.wait_state("silent", live=True)
    scenario.wait_state("ghost", live=False)


def test_topic_deleted(scenario: Scenario, run_incident: RunIncident) -> None:
    key, event = scenario.write()
    scenario.wait_delivered(event)
    kafka = scenario.deployment.kafka
    topics = desired_topics(scenario.deployment.pipeline, scenario.deployment.environment)
    topic = next(topic for topic in topics if topic.name == TOPIC)
    kafka.delete(TOPIC)
    wait_for(
        "the topic to be deleted", lambda: Observation(None if TOPIC in kafka.topics() else True, "exists"), seconds=30
    )
    kafka.create(TOPIC, partitions=topic.partitions, replication_factor=1, config=topic.config)
    done = run_incident("topic-deleted")
    assert f"topic {TOPIC}: the topic lacks the states of book" in done[0].stderr
    scenario.wait_state(key, live=True)
    scenario.wait_delivered(scenario.write()[1])


def test_table_dropped(scenario: Scenario, run_incident: RunIncident) -> None:
    """The rows between the creation of the new table and its addition to the publication are lost."""
    scenario.sql(
        "create table new_event (like incidents_event including all); drop table incidents_event; "
        "alter table new_event rename to incidents_event; grant select on incidents_event to outbox_connector"
    )
    lost, _ = scenario.write()
    scenario.sql("alter publication incidents_outbox add table incidents_event")
    done = run_incident("table-dropped")
    assert "postgres.table-identity" in done[0].stdout
    assert "table public.incidents_event: rows that were written before the publication contained" in done[1].stderr
    scenario.wait_state(lost, live=True)
    scenario.wait_delivered(scenario.write()[1])


def test_connector_upgrade(scenario: Scenario, run_incident: RunIncident) -> None:
    done = run_incident("connector-upgrade")
    assert Path("before-upgrade.json").stat().st_mode & 0o777 == 0o600
    assert "connector STOPPED" in done[1].stderr
    scenario.wait_delivered(scenario.write()[1])


def test_schema_roll_out(scenario: Scenario, run_incident: RunIncident, project: Path) -> None:
    path = project / "schemas" / "incidents.avsc"
    schema = json.loads(path.read_text())
    schema["fields"].append({"name": "shelf", "type": ["null", "string"], "default": None})
    path.write_text(json.dumps(schema))
    run_incident("schema-roll-out")
    # As if the column had been added with a default.
    scenario.sql("""update incidents_book set state = state || '{"shelf": "A7"}'""")
    check = equal_states(scenario)
    assert (check.status, "(shelf)" in check.seen) == (Status.FAIL, True)
    run_remedy(check, CommonOptions(scenario.file, "local").arguments, scenario.sql)
    assert equal_states(scenario).status is Status.PASS
    scenario.extra = {"shelf": "A7"}
    scenario.wait_delivered(scenario.write()[1])


def equal_states(scenario: Scenario) -> Check:
    comparison = comparison_of(scenario.deployment, seconds=60, max_records=100_000)
    return next(check for check in state_checks.check(comparison, silent) if check.id == "states.equal")


def test_removing_an_aggregate(scenario: Scenario, run_incident: RunIncident) -> None:
    scenario.change(lambda data: data["aggregates"].pop("author"))
    run_incident("removing-an-aggregate")
    scenario.wait_delivered(scenario.write()[1])


def add_partitions(scenario: Scenario) -> None:
    """Add partitions to the topic against the advice, and delete an aggregate whose key now has another partition."""
    key = next(key for key in map(str, range(100)) if partition_of(key.encode(), 4) != partition_of(key.encode(), 6))
    scenario.wait_delivered(scenario.write(key)[1])
    scenario.change(lambda data: data["aggregates"]["book"].update(partitions=6))
    outbox = in_process()
    refused = outbox("apply", "--yes", code=1)
    assert f"topic {TOPIC}: keys move to other partitions" in refused.stderr
    outbox("apply", "--yes", "--allow", f"topic {TOPIC}")
    scenario.partitions = 6
    with psycopg.connect(scenario.dsn) as connection:
        connection.execute("delete from incidents_book where id = %s", (key,))
        event = emit(
            connection,
            aggregate_type="book",
            aggregate_id=key,
            event_type="book_deleted",
            payload=None,
            table="public.incidents_event",
        )
    scenario.wait_delivered(str(event))
    verified = outbox("verify", "--no-canary", code=1)
    assert "kafka.keys-partition" in verified.stdout


def test_partition_growth(scenario: Scenario, run_incident: RunIncident) -> None:
    """This must be the last test of the module, because the incident deletes the pipeline of the other tests.

    Partitions are added first, so that the tombstone of an aggregate does not delete its state.
    """
    add_partitions(scenario)
    second_file = scenario.file.with_name("incidents2.yaml")
    data = yaml.safe_load(scenario.file.read_text())
    data |= {"name": "incidents2", "prefix": "incidents2"}
    data["connector"]["name"] = "incidents2-outbox"
    data["source"] |= {"publication": "incidents2_outbox", "slot": "incidents2_outbox"}
    data["aggregates"]["book"]["partitions"] = 6
    second_file.write_text(yaml.safe_dump(data))
    Path("connectors").symlink_to(scenario.file.parent)
    run_incident("partition-growth")
    with open_deployment(second_file, "local") as deployment:
        key, event = scenario.write()
        record = wait_record(deployment, "incidents2.book", 6, event)
        assert record.partition() == partition_of(key.encode(), 6)
        with psycopg.connect(scenario.dsn) as connection:
            aggregates = {row[0] for row in connection.execute("select id from incidents_book")}
        assert live_keys(deployment, "incidents2.book", 6) == aggregates
        assert TOPIC not in deployment.kafka.topics()
