"""Polling relay: processes that send the rows of the outbox table in place of the connector."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from outbox_lab.drill.components import Component, ProcessComponent
from outbox_lab.drill.project import ENVIRONMENT
from outbox_lab.drill.ways.pipeline import PipelineWay
from outbox_lab.drill.ways.way import STACK_FAULTS, Promise

PROCESSES = 2
RELAY = ("-c", "from outbox_kit.cli import main; main()", "relay")


class Relay(PipelineWay):
    """Two processes of `outbox relay`. A fault of the relay hits one of them."""

    name = "relay"
    description = "Outbox table, two processes of the polling relay"
    promise = Promise()
    faults = ("none", "kill-relay", "kill-writer", "pause-relay", *STACK_FAULTS)

    systems = ("postgres", "kafka", "registry")

    @contextmanager
    def running(self, pipeline_file: Path) -> Iterator[Mapping[str, Component]]:
        command = [sys.executable, *RELAY, "-p", str(pipeline_file), "-e", ENVIRONMENT]
        command += ["--set", f"environment.source.port={self.drill.proxy.port}"]
        with ExitStack() as stack:
            processes = [self._start(command, number) for number in range(PROCESSES)]
            for process in processes:
                stack.callback(process.stop)
            yield {"relay": processes[0]}

    def _start(self, command: list[str], number: int) -> ProcessComponent:
        log = self.drill.logs / f"{self.cell}.relay-{number}.log"
        return ProcessComponent(command, self.drill.project.folder, log, {}, ready=b"holds buckets")
