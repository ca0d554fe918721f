"""Deploy ways of sending that poll: the relay, and polling of an incrementing column with and without its gap."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import ClassVar

from outbox_kit.postgres import client
from outbox_lab.drill import poller
from outbox_lab.drill.components import Component, ProcessComponent, start_module
from outbox_lab.drill.project import ENVIRONMENT
from outbox_lab.drill.ways.pipeline import PipelineWay
from outbox_lab.drill.ways.way import STACK_FAULTS, Promise

RELAY = ("-c", "from outbox_kit.cli import main; main()", "relay")


class Relay(PipelineWay):
    """Way in which two processes of `outbox relay` send the rows. A fault of the relay hits one of these processes."""

    name = "relay"
    description = "Outbox table, two processes of the polling relay"
    promise = Promise()
    faults = ("none", "kill-relay", "kill-writer", "pause-relay", *STACK_FAULTS)
    systems = ("postgres", "kafka", "registry")
    processes: ClassVar[int] = 2

    @contextmanager
    def running(self, pipeline_file: Path) -> Iterator[Mapping[str, Component]]:
        command = [sys.executable, *RELAY, "-p", str(pipeline_file), "-e", ENVIRONMENT]
        command += ["--set", f"environment.source.port={self.drill.proxy.port}"]
        with ExitStack() as stack:
            processes = [stack.enter_context(self._start(command, number)) for number in range(self.processes)]
            yield {"relay": processes[0]}

    def _start(self, command: list[str], number: int) -> ProcessComponent:
        log = self.drill.logs / f"{self.cell}.relay-{number}.log"
        return ProcessComponent(command, self.drill.project.folder, log, ready=b"holds buckets")


class IncrementingPolling(PipelineWay):
    """Way in which one process reads the rows whose numbers are higher than that of the last row that it has read."""

    name = "polling-incrementing"
    description = "Outbox table, polling of an incrementing column as JDBC source connectors do"
    promise = Promise(no_loss=False)
    faults = Relay.faults
    systems = ("postgres", "kafka", "registry")
    horizon: ClassVar[bool] = False

    @contextmanager
    def running(self, pipeline_file: Path) -> Iterator[Mapping[str, Component]]:
        with client.connected(self._deployment.environment.source) as connection:
            poller.prepare(connection, self._deployment.pipeline.source.table)
        settings = poller.PollerSettings(str(pipeline_file), self.drill.proxy.port, self.horizon)
        log = self.drill.logs / f"{self.cell}.poller.log"
        with start_module("outbox_lab.drill.poller", settings, self.drill.project.folder, log) as process:
            yield {"relay": process}


class HorizonPolling(IncrementingPolling):
    """Way in which one process reads rows in the order of transaction ids, up to the oldest open transaction."""

    name = "polling-horizon"
    description = "Outbox table, polling of transaction ids below the snapshot horizon"
    # A transaction can get its id before it locks the account, so the order of ids can differ from the order of states.
    promise = Promise(in_order=False)
    horizon = True
