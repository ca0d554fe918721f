"""Deploy and remove the pipelines of ways of sending that have a pipeline file."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import ClassVar

from outbox_events.errors import OutboxError, RejectedError, UnreachableError
from outbox_events.waiting import Observation, wait_for
from outbox_kit.connect import lifecycle
from outbox_kit.deployment import Deployment, apply, open_deployment
from outbox_kit.kafka.topic_identity import types_with_pending_backfill
from outbox_kit.pipeline.overrides import Overrides
from outbox_kit.postgres import client as postgres_client
from outbox_kit.postgres.replication_slot import read_slot, wait_inactive
from outbox_kit.recovery import recover
from outbox_kit.results import silent
from outbox_kit.results.changes import System
from outbox_kit.results.checks import Status
from outbox_kit.verification import verify
from outbox_lab.drill.accounts import AGGREGATE
from outbox_lab.drill.components import Component
from outbox_lab.drill.project import ENVIRONMENT
from outbox_lab.drill.senders.sender import SenderSettings
from outbox_lab.drill.ways.way import Deployed, Way

DEPLOY_S = 60
# The short wal_sender_timeout in project.SERVER_SETTINGS makes this check fail.
EXPECTED_FAILURES = ("path.wal-sender-timeout",)


class PipelineWay(Way):
    """Base class of ways for which `outbox apply` creates the outbox table, topics and schemas."""

    systems: ClassVar[Collection[System]] = ()
    """Systems to which the pipeline is deployed. If empty, the pipeline is deployed to all systems."""

    def sender(self) -> SenderSettings:
        """Return the settings of the sender that the writers use."""
        return SenderSettings("outbox", {"table": f"public.{self.cell}_event"})

    def changes(self) -> dict[str, object]:
        """Return the keys of the pipeline file whose values differ from those for a default outbox table."""
        return {}

    def running(self, pipeline_file: Path) -> AbstractContextManager[Mapping[str, Component]]:
        """Start the processes of the way, and yield the components that a fault can hit."""
        del pipeline_file
        return nullcontext({})

    @contextmanager
    def deployed(self) -> Iterator[Deployed]:
        pipeline_file = self.drill.project.write_pipeline(self.cell, **self.changes())
        with open_deployment(pipeline_file, ENVIRONMENT, self._replicas()) as deployment:
            self._deployment = deployment
            self._apply(deployment)
            try:
                with self.running(pipeline_file) as components:
                    yield Deployed(f"{self.cell}.{AGGREGATE}", self.sender(), pipeline_file, components, deployment)
            finally:
                _remove_connector_and_slot(deployment)

    def detected(self) -> str:
        try:
            checks = verify(self._deployment, silent, canary_seconds=None)
        except OutboxError as error:
            return error.message
        failed = [check for check in checks if check.status is Status.FAIL and check.id not in EXPECTED_FAILURES]
        return "; ".join(f"{check.id}: {check.seen}" for check in failed)

    def repair(self) -> list[str]:
        return recover(self._deployment, silent).lines

    def lacks_states(self) -> bool:
        lock = self._deployment.lock()
        return lock is not None and bool(types_with_pending_backfill(lock.topics))

    def _replicas(self) -> Overrides:
        kafka = self.drill.kafka
        replicas = f"environment.kafka.replication_factor={kafka.replication_factor}"
        return Overrides((replicas, f"environment.kafka.min_insync_replicas={kafka.min_insync_replicas}"))

    def _apply(self, deployment: Deployment) -> None:
        """Deploy the pipeline. Retry, because services might reject requests after the fault of an earlier cell."""

        def poll() -> Observation[bool]:
            try:
                apply(deployment, silent, only=self.systems)
            except (UnreachableError, RejectedError) as error:
                return Observation(None, error.message)
            return Observation(True, "applied")

        wait_for(f"the deployment of {self.cell}", poll, seconds=DEPLOY_S, interval=1)


def _remove_connector_and_slot(deployment: Deployment) -> None:
    """Remove the connector and slot. The stack has only one worker for all cells, and an unused slot retains WAL."""
    with suppress(OutboxError):
        lifecycle.remove(deployment.connect, deployment.pipeline.connector.name)
        with postgres_client.connected(deployment.environment.source) as connection:
            wait_inactive(connection, deployment.pipeline.source.slot)
            if read_slot(connection, deployment.pipeline.source.slot) is not None:
                postgres_client.drop_slot(connection, deployment.pipeline.source.slot)
