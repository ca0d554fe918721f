"""Polling of an incrementing column, as JDBC source connectors do, and the fix of its hole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import msgspec

from outbox_kit.postgres import client
from outbox_lab.drill import poller
from outbox_lab.drill.components import Component, ProcessComponent, python_module
from outbox_lab.drill.ways.pipeline import PipelineWay
from outbox_lab.drill.ways.relay import Relay
from outbox_lab.drill.ways.way import Promise, Way


class IncrementingPolling(PipelineWay):
    """One process that reads the rows with a higher number than the last one."""

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
        settings_file = self.drill.logs / f"{self.cell}.poller.json"
        settings_file.write_bytes(msgspec.json.encode(settings))
        command = python_module("outbox_lab.drill.poller", str(settings_file))
        log = self.drill.logs / f"{self.cell}.poller.log"
        process = ProcessComponent(command, self.drill.project.folder, log, {})
        try:
            yield {"relay": process}
        finally:
            process.stop()


class HorizonPolling(IncrementingPolling):
    """Reads the rows in the order of transaction ids, up to the oldest transaction that has not ended."""

    name = "polling-horizon"
    description = "Outbox table, polling of transaction ids below the snapshot horizon"
    # Transaction ids are assigned before the lock of an account, so their order can differ from that of its states.
    promise = Promise(in_order=False)
    horizon = True


POLLING_WAYS: tuple[type[Way], ...] = (IncrementingPolling, HorizonPolling)
