"""Server restarts and outages: no committed row is lost or duplicated."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterator
from uuid import uuid4

import pytest
from tests.compose.compose_stack import REPOSITORY, ComposeStack, start_compose_stack
from tests.conftest import make_project
from tests.integration.support import CommandResult, headers, records, run
from tests.integration.transforms.test_records import book, send

from outbox_events.waiting import Observation, wait_for

TOPIC, PARTITIONS = "library.book", 4
ARRIVE_SECONDS = 180
STOP_SECONDS = 60
ROWS = 50

pytestmark = pytest.mark.long


def write_rows(stack: ComposeStack) -> set[str]:
    """Commit ROWS rows. Return the ids of their events."""
    keys = [str(uuid4()) for _ in range(ROWS)]
    return {send(stack.source_dsn, "book", key, book(key)) for key in keys}


def wait_each_once(stack: ComposeStack, events: set[str]) -> None:
    """Wait until all events are on the topic, and check that each occurs exactly once."""

    def poll() -> Observation[Counter[str]]:
        with stack.deployment() as deployment:
            actual = Counter(headers(item)["event_id"] for item in records(deployment, TOPIC, PARTITIONS))
        missing = len(events - set(actual))
        return Observation(None if missing else actual, f"{missing} of {len(events)} events missing")

    actual = wait_for(f"{len(events)} events on {TOPIC}", poll, seconds=ARRIVE_SECONDS, interval=2.0)
    assert {actual[event] for event in events} == {1}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComposeStack]:
    with start_compose_stack(make_project(tmp_path_factory.mktemp("outages"))) as stack:
        done = stack.outbox("apply", "--yes")
        assert done.code == 0, done.output
        yield stack


@pytest.mark.parametrize("method", ["stop", "kill"])
@pytest.mark.parametrize("service", ["kafka", "postgres"])
def test_delivers_all_rows_after_a_server_restart(stack: ComposeStack, service: str, method: str) -> None:
    before = write_rows(stack)
    if method == "stop":
        stack.container(service).stop(timeout=STOP_SECONDS)
    else:
        stack.container(service).kill()
    wait_for(f"{service} to end", lambda: ended(stack, service), seconds=60)
    during = write_rows(stack) if service == "kafka" else set()
    stack.container(service).start()
    stack.wait_healthy(service)
    after = write_rows(stack)
    wait_each_once(stack, before | during | after)
    verified = wait_for("verify to pass", lambda: verify_passes(stack), seconds=120)
    assert verified


def test_failed_start_reports_the_cause_and_a_later_start_continues(stack: ComposeStack) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        port_in_use = up(stack, REGISTRY_PORT=str(port))
    assert port_in_use.code != 0
    assert f"hint:  port {port} is in use: change REGISTRY_PORT in compose/.env" in port_in_use.stderr

    failed = up(stack, ADMIN_PASSWORD="of another file")
    assert failed.code != 0
    assert "--- databases (exited, 1): the last lines of its log" in failed.stderr
    assert "ADMIN_PASSWORD in compose/.env differs" in failed.stderr
    assert "Traceback" not in failed.stderr

    assert up(stack, OUTBOX_COMPOSE_SECONDS="1").code != 0

    repaired = up(stack)
    assert repaired.code == 0, repaired.output
    assert wait_for("verify to pass", lambda: verify_passes(stack), seconds=120)


def up(stack: ComposeStack, **changes: str) -> CommandResult:
    """Run the script that `make up` runs after the images and compose/.env have been created."""
    return run([str(REPOSITORY / "scripts" / "compose-up.sh")], REPOSITORY, **{**stack.values, **changes})


def ended(stack: ComposeStack, service: str) -> Observation[bool]:
    status = stack.container(service).status
    return Observation(True if status == "exited" else None, status)


def verify_passes(stack: ComposeStack) -> Observation[bool]:
    done = stack.outbox("verify")
    return Observation(True if done.code == 0 else None, done.output)


def test_keeps_running_without_one_of_three_brokers(tmp_path_factory: pytest.TempPathFactory) -> None:
    project = make_project(tmp_path_factory.mktemp("three"))
    variables = {"KAFKA_REPLICATION": "3", "KAFKA_MIN_INSYNC": "2"}
    with start_compose_stack(project, ("compose.yaml", "three-brokers.yaml"), **variables) as stack:
        for command in (("apply", "--yes"), ("verify",)):
            done = stack.outbox(*command)
            assert done.code == 0, done.output
        before = write_rows(stack)
        stack.container("kafka-3").kill()
        during = write_rows(stack)
        wait_each_once(stack, before | during)
        stack.container("kafka-3").start()
        stack.wait_healthy("kafka-3")
        wait_for("verify to pass", lambda: verify_passes(stack), seconds=120)
