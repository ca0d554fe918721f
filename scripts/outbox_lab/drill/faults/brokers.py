"""Add two brokers to the cluster, and kill brokers that lead partitions while the other replicas are in sync."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from outbox_events import fence
from outbox_events.waiting import Observation, wait_for
from outbox_kit.kafka.client import client_settings
from outbox_kit.stack.ports import HOST, free_port
from outbox_kit.stack.services.java import find_java
from outbox_kit.stack.services.jvm import Settings, kafka_command, write_properties
from outbox_kit.stack.services.kafka import FORMAT_SECONDS, broker_settings
from outbox_kit.stack.services.service import Context
from outbox_kit.stack.tools import run_tool
from outbox_lab.drill.components import ProcessComponent, stop_all
from outbox_lab.drill.stack import DrillStack

NODE_IDS = (2, 3)
STARTED = b"Kafka Server started"
START_S = 90
END_S = 10
IN_SYNC_S = 90
REQUEST_S = 10


@contextmanager
def three_brokers(drill: DrillStack) -> Iterator[None]:
    """Run two more brokers during a `with` block. Topics that are created in the block have three replicas."""
    # The internal topics have one replica, which must not be on a broker that is killed. Connect created the others.
    fence(Producer({**client_settings(drill.kafka), "transactional.id": "outbox-drill"}))
    try:
        drill.followers.extend(_started(drill, node_id) for node_id in NODE_IDS)
        wait_for("three brokers", lambda: _check_brokers(drill), seconds=START_S)
        yield
    finally:
        stop_all(drill.followers)
        drill.followers.clear()


def kill_leaders(drill: DrillStack) -> None:
    """Kill each of the added brokers, and each time wait until all replicas are in sync. Raises WaitTimeoutError."""
    for broker in drill.followers:
        broker.signal(signal.SIGKILL)
        # Until the broker has started again, the controller may report the replicas of the killed broker as in sync.
        wait_for("the end of the broker", partial(_check_running, broker, expected=False), seconds=END_S, interval=0.05)
        wait_for("the start of the broker", partial(_check_running, broker, expected=True), seconds=START_S)
        wait_for("all replicas", lambda: _check_replicas(drill), seconds=IN_SYNC_S, interval=0.5)


def _check_running(broker: ProcessComponent, *, expected: bool) -> Observation[bool]:
    is_ready = broker.is_ready()
    return Observation(is_ready is expected or None, "started" if is_ready else "not started")


def _started(drill: DrillStack, node_id: int) -> ProcessComponent:
    layout, name = drill.stack.layout, f"broker{node_id}"
    settings_file = layout.configuration / f"{name}.properties"
    settings = _settings(drill, node_id)
    write_properties(settings_file, settings)
    context = Context(layout, drill.state, drill.stack.options, find_java())
    if not (layout.data / name / "meta.properties").exists():
        arguments = ("--config", str(settings_file), "--cluster-id", drill.state.kafka_cluster_id)
        command = kafka_command(context, "format", "kafka.tools.StorageTool", "format", *arguments, heap="256m")
        run_tool("Kafka's storage tool", command, seconds=FORMAT_SECONDS, folder=layout.home)
    command = kafka_command(context, name, "kafka.Kafka", str(settings_file), heap="384m")
    return ProcessComponent(command, layout.home, drill.logs / f"{name}.log", ready=STARTED)


def _settings(drill: DrillStack, node_id: int) -> Settings:
    """Return the settings of a broker that is not a controller."""
    listener = f"PLAINTEXT://{HOST}:{free_port(drill.state.ports.values())}"
    own: Settings = {
        "process.roles": "broker",
        "node.id": node_id,
        "listeners": listener,
        "advertised.listeners": listener,
    }
    return {**broker_settings(drill.state.ports, drill.stack.layout.data / f"broker{node_id}"), **own}


def _check_brokers(drill: DrillStack) -> Observation[bool]:
    count = len(_admin(drill).list_topics(timeout=REQUEST_S).brokers)
    return Observation(count > len(NODE_IDS) or None, f"{count} brokers")


def _check_replicas(drill: DrillStack) -> Observation[bool]:
    topics = _admin(drill).list_topics(timeout=REQUEST_S).topics
    behind = [
        f"{name}-{number}"
        for name, topic in topics.items()
        for number, partition in topic.partitions.items()
        if len(partition.isrs) < len(partition.replicas)
    ]
    return Observation(not behind or None, f"not in sync: {', '.join(behind)}")


def _admin(drill: DrillStack) -> AdminClient:
    return AdminClient(client_settings(drill.kafka))
