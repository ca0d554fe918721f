"""Run Kafka as one node that is both broker and controller."""

from __future__ import annotations

import shutil
from pathlib import Path

from outbox_events.waiting import Observation
from outbox_kit.stack import health_checks
from outbox_kit.stack.ports import HOST
from outbox_kit.stack.services.jvm import kafka_command, write_properties
from outbox_kit.stack.services.service import Context, Program, Service
from outbox_kit.stack.tools import run_tool

NODE_ID = 1
FORMAT_SECONDS = 60
# With version 2, a Java producer on a busy machine sometimes ends a transaction before it has sent the records
# (docs/incidents.md, failed task).
TRANSACTION_VERSION = "transaction.version=1"


def broker_settings(ports: dict[str, int], log_directory: Path) -> dict[str, str | int | bool]:
    """Return the settings of server.properties."""
    listener, controller = f"{HOST}:{ports['kafka']}", f"{HOST}:{ports['controller']}"
    return {
        # The quorum is static, because the port can change between two starts with the same data.
        "controller.quorum.voters": f"{NODE_ID}@{controller}",
        "listeners": f"PLAINTEXT://{listener},CONTROLLER://{controller}",
        "advertised.listeners": f"PLAINTEXT://{listener}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(log_directory),
        **single_node_settings(),
    }


def single_node_settings() -> dict[str, str | int | bool]:
    """Return the settings of a single broker, embedded or in a container.

    The internal topics have few partitions. With the default of 50 per topic, a single node starts seconds later.
    """
    return {
        "process.roles": "broker,controller",
        "node.id": NODE_ID,
        "controller.listener.names": "CONTROLLER",
        # A write to a topic that does not exist must fail.
        "auto.create.topics.enable": False,
        "num.partitions": 1,
        "default.replication.factor": 1,
        "min.insync.replicas": 1,
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 4,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        "share.coordinator.state.topic.num.partitions": 4,
        # The group of a restarted worker must not wait for more members.
        "group.initial.rebalance.delay.ms": 0,
        # The buffer is 32 MiB. The default of 128 MiB is a quarter of the broker's heap.
        "log.cleaner.dedupe.buffer.size": 32 * 1024 * 1024,
        # An idle controller writes and flushes a record at this interval. The default is 500 ms.
        "metadata.max.idle.interval.ms": 5000,
    }


class Kafka(Service):
    """The broker as a service of the stack."""

    name = "kafka"
    start_seconds = 90.0

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.settings_file = context.layout.configuration / "server.properties"
        self.directory = context.layout.data / "kafka"

    def prepare(self) -> None:
        """Write server.properties, and format the log directory before the first start."""
        write_properties(self.settings_file, broker_settings(self.state.ports, self.directory))
        if not (self.directory / "meta.properties").exists():
            self.format()

    def format(self) -> None:
        """Format the log directory under a temporary name, so that an incomplete directory is never used."""
        unfinished_folder = self.directory.with_name("kafka.unfinished")
        for folder in (unfinished_folder, self.directory):
            shutil.rmtree(folder, ignore_errors=True)
        settings = self.settings_file.with_name("format.properties")
        write_properties(settings, broker_settings(self.state.ports, unfinished_folder))
        cluster_id = self.state.kafka_cluster_id
        identity = ("--config", str(settings), "--cluster-id", cluster_id)
        arguments = ("kafka.tools.StorageTool", "format", *identity, "--feature", TRANSACTION_VERSION)
        options = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
        command = kafka_command(self.context, "format", *arguments, heap="256m", options=options)
        run_tool("Kafka's storage tool", command, seconds=FORMAT_SECONDS, folder=self.layout.home)
        unfinished_folder.rename(self.directory)

    def program(self) -> Program:
        command = kafka_command(self.context, self.name, "kafka.Kafka", str(self.settings_file), heap="512m")
        return Program(command, stop_seconds=30)

    def check(self) -> Observation[bool]:
        return health_checks.check_kafka(self.state.ports["kafka"], self.state.kafka)
