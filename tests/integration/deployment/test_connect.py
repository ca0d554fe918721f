"""The connector against a real worker: failed updates, declared states, other connectors, placeholders, log levels."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
import yaml
from tests.integration.support import Deploy, Outbox, wait_record
from tests.integration.transforms.test_records import book, send

from outbox_events.waiting import Observation, wait_for
from outbox_kit.connect import lifecycle as connect_lifecycle
from outbox_kit.connect.config_diff import FINGERPRINT_KEY
from outbox_kit.deployment import Deployment, open_deployment

# Connect's validation accepts this setting, but the task fails when it starts.
INVALID_CONFIG = {"converters": "broken", "broken.type": "no.such.Converter"}


@pytest.fixture
def outbox(outbox_here: Outbox) -> Outbox:
    """Run commands in this process."""
    return outbox_here


@contextmanager
def writing(dsn: str, table: str) -> Iterator[list[str]]:
    """Write rows at intervals during the block. Yield the list of their event ids, which grows."""
    sent: list[str] = []
    ended = threading.Event()

    def write() -> None:
        while not ended.wait(0.5):
            key = str(uuid4())
            sent.append(send(dsn, "book", key, book(key), table=table))

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield sent
    finally:
        ended.set()
        thread.join()


def override(path: Path, overrides: dict[str, str]) -> None:
    """Change the connector's overrides in a pipeline file."""
    data = yaml.safe_load(path.read_text())
    data["connector"]["overrides"] = overrides
    path.write_text(yaml.safe_dump(data))


def test_failed_update_is_rolled_back_without_data_loss(
    outbox: Outbox, deploy: Deploy, project: Path, source_dsn: str
) -> None:
    deployment = deploy("relapse")
    before = deployment.lock()
    assert before is not None
    assert before.config is not None
    override(project / "connectors" / "relapse.yaml", INVALID_CONFIG)
    with writing(source_dsn, "public.relapse_event") as sent:
        done = outbox("apply", "--yes", pipeline="relapse")
    assert done.code == 1, done.output
    mark = before.config[FINGERPRINT_KEY][:12]
    assert "connector relapse FAILED: " in done.stderr
    assert "no.such.Converter" in done.stderr
    assert f"rolled back to the last working config ({mark}); the connector is RUNNING" in done.stderr
    assert "\tat " not in done.stderr

    live = deployment.connect.config("relapse")
    assert live is not None
    assert live[FINGERPRINT_KEY] == before.config[FINGERPRINT_KEY]
    assert sent, "rows were written meanwhile"
    for event_id in sent:
        wait_record(deployment, "relapse.book", 4, event_id)

    pending = outbox("plan", "--output", "json", pipeline="relapse")
    assert pending.code == 3, pending.output
    (change,) = json.loads(pending.stdout)["changes"]
    assert change["after"] == "broken.type: (absent) → no.such.Converter; converters: (absent) → broken"
    override(project / "connectors" / "relapse.yaml", {})
    assert outbox("plan", pipeline="relapse").code == 0


def test_first_config_that_fails_stops_the_connector(outbox: Outbox, make_pipeline: Callable[..., Path]) -> None:
    connector = {"name": "stillborn", "template": "outbox-postgres", "overrides": INVALID_CONFIG}
    path = make_pipeline("stillborn", connector=connector)
    done = outbox("apply", "--yes", pipeline="stillborn")
    assert done.code == 1, done.output
    assert "no earlier config has run, so the connector is left STOPPED" in done.stderr
    with open_deployment(path, "local") as deployment:
        status = deployment.connect.status("stillborn")
        assert status is not None
        assert connect_lifecycle.is_stopped(status)
        override(path, {})
        assert outbox("apply", "--yes", pipeline="stillborn").code == 0
        assert connect_lifecycle.is_running(deployment.connect.status("stillborn"))


def test_rejects_a_placeholder_that_the_worker_cannot_resolve(
    outbox: Outbox, make_pipeline: Callable[..., Path]
) -> None:
    """Without this check, the connector would be created, report RUNNING, and use a literal ${...}."""
    overrides = {"producer.override.client.rack": "${env:OUTBOX_NOT_SET}"}
    make_pipeline("literal", connector={"name": "literal", "template": "outbox-postgres", "overrides": overrides})
    done = outbox("apply", "--yes", pipeline="literal")
    assert done.code == 1, done.output
    assert "does not resolve the placeholder in producer.override.client.rack" in done.stderr
    assert "config.providers" in done.stderr


# --- the declared state


@pytest.fixture
def declare(project: Path) -> Callable[[str], None]:
    """Return a function that writes the environment `halting`, which is `local` with the given declared state."""
    environments = project / "connectors" / "environments"

    def write(state: str) -> None:
        data = yaml.safe_load((environments / "local.yaml").read_text())
        data["name"] = "halting"
        data["connector"]["state"] = state
        (environments / "halting.yaml").write_text(yaml.safe_dump(data))

    return write


def test_applies_the_declared_state(
    outbox: Outbox, make_pipeline: Callable[..., Path], declare: Callable[[str], None], source_dsn: str
) -> None:
    path = make_pipeline("halting")

    def applied(state: str) -> list[dict[str, str]]:
        """Declare a state, apply it, and check that a second plan is empty. Return the changes of the first plan."""
        declare(state)
        planned = outbox("plan", "--output", "json", pipeline="halting", environment="halting")
        done = outbox("apply", "--yes", pipeline="halting", environment="halting")
        assert done.code == 0, done.output
        second_plan = outbox("plan", pipeline="halting", environment="halting")
        assert second_plan.code == 0, second_plan.output
        return [change for change in json.loads(planned.stdout)["changes"] if change["system"] == "connect"]

    (created,) = applied("stopped")
    assert (created["action"], created["after"]) == ("create", "left STOPPED")
    key = str(uuid4())
    event_id = send(source_dsn, "book", key, book(key), table="public.halting_event")
    (paused,) = applied("paused")
    assert (paused["object"], paused["why"]) == ("start halting", "the connector has not written an offset")
    (resumed,) = applied("running")
    assert (resumed["object"], resumed["before"], resumed["after"]) == ("state halting", "PAUSED", "RUNNING")
    with open_deployment(path, "halting") as deployment:
        wait_record(deployment, "halting.book", 4, event_id)
        # If the connector is stopped outside outbox-kit, the plan shows the difference, and the next apply reverts it.
        connect_lifecycle.stop(deployment.connect, "halting")
        (undone,) = applied("running")
        assert (undone["object"], undone["before"], undone["after"]) == ("state halting", "STOPPED", "RUNNING")
        assert connect_lifecycle.is_running(deployment.connect.status("halting"))


# --- the other connectors of the cluster


def test_rejects_another_connector_on_the_same_slot(outbox: Outbox, deploy: Deploy) -> None:
    deployment = deploy("crowded")
    foreign_config = {**deployment.render(deployment.lock()), "topic.prefix": "elsewhere"}
    deployment.connect.create_stopped("a stranger", foreign_config)
    try:
        refused = outbox("plan", pipeline="crowded")
    finally:
        connect_lifecycle.remove(deployment.connect, "a stranger", with_offsets=True)
    assert refused.code == 1, refused.output
    assert "slot.name 'crowded_s' is also used by connector 'a stranger'" in refused.stderr
    assert "topic.prefix" not in refused.stderr
    assert deployment.connect.config("a stranger") is None
    assert outbox("plan", pipeline="crowded").code == 0


def test_replaces_the_old_connector_after_a_rename(
    outbox: Outbox, deploy: Deploy, project: Path, source_dsn: str
) -> None:
    deployment = deploy("changeling")
    key = str(uuid4())
    wait_record(
        deployment, "changeling.book", 4, send(source_dsn, "book", key, book(key), table="public.changeling_event")
    )
    path = project / "connectors" / "changeling.yaml"
    data = yaml.safe_load(path.read_text())
    data["connector"]["name"] = "changed"
    path.write_text(yaml.safe_dump(data))
    planned = outbox("plan", "--output", "json", pipeline="changeling")
    changes = [f"{change['action']} {change['object']}" for change in json.loads(planned.stdout)["changes"]]
    assert changes == ["delete connector changeling", "create connector changed"]

    refused = outbox("apply", "--yes", pipeline="changeling")
    assert refused.code == 1, refused.output
    assert "connector changeling: the offset of changeling is not used" in refused.stderr
    assert "changed" not in deployment.connect.listed_connectors()

    done = outbox("apply", "--yes", "--allow", "connector changeling", pipeline="changeling")
    assert done.code == 0, done.output
    assert "changeling" not in deployment.connect.listed_connectors()
    assert outbox("plan", pipeline="changeling").code == 0
    wait_record(
        deployment, "changeling.book", 4, send(source_dsn, "book", key, book(key), table="public.changeling_event")
    )


# --- log levels


def test_shows_and_sets_log_levels(outbox: Outbox, library: Deployment) -> None:
    done = outbox("log-level", "io.outboxkit.smt", "debug")
    assert done.code == 0, done.output
    assert "io.outboxkit.smt will log at DEBUG" in done.stderr

    def poll() -> Observation[bool]:
        """Poll, because the workers receive the change through a topic."""
        level = library.connect.loggers().get("io.outboxkit.smt")
        return Observation(True if level == "DEBUG" else None, f"level {level}")

    wait_for("the worker to take the level", poll, seconds=30)
    visible = json.loads(outbox("log-level", "io.outboxkit", "--output", "json").stdout)["loggers"]
    assert set(visible.values()) == {"DEBUG"}, "those below it have its level"
    assert library.connect.loggers()["root"] in outbox("log-level").stdout
    invalid_level = outbox("log-level", "io.outboxkit.smt", "LOUD")
    assert invalid_level.code == 2, invalid_level.output
