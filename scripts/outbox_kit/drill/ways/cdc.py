"""Ways in which Debezium reads the WAL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import ClassVar

from outbox_kit.connect import lifecycle
from outbox_kit.deployment import Deployment, apply, open_deployment
from outbox_kit.drill.accounts import AGGREGATE
from outbox_kit.drill.project import ENVIRONMENT
from outbox_kit.drill.senders.sender import SenderSettings
from outbox_kit.drill.ways.way import Deployed, Promise, Way
from outbox_kit.errors import OutboxKitError, RejectedError, UnreachableError
from outbox_kit.postgres import client as postgres_client
from outbox_kit.postgres.replication_slot import read_slot, wait_inactive
from outbox_kit.progress import silent
from outbox_kit.waiting import Observation, wait_for

MESSAGE_PREFIX = "drill"
DEPLOY_S = 60


class Cdc(Way):
    """The connector of this kit, reading an outbox table."""

    name = "cdc"
    description = "Outbox table, Debezium connector, at least once"
    promise = Promise()
    faults = (
        "none",
        "kill-connect",
        "kill-writer",
        "kill-kafka",
        "kill-postgres",
        "pause-connect",
        "pause-kafka",
        "pause-postgres",
        "restart-kafka",
        "restart-postgres",
        "reset-connection",
        "slow-connection",
    )
    exactly_once: ClassVar[bool] = False

    def sender(self) -> SenderSettings:
        """Return the sender of the writers."""
        return SenderSettings("outbox", {"table": f"public.{self.cell}_event"})

    def changes(self) -> dict[str, object]:
        """Return keys of the pipeline file that differ from those of an outbox table."""
        return {}

    @contextmanager
    def deployed(self) -> Iterator[Deployed]:
        self.drill.set_exactly_once(enabled=self.exactly_once)
        pipeline_file = self.drill.project.write_pipeline(self.cell, **self.changes())
        with open_deployment(pipeline_file, ENVIRONMENT) as deployment:
            self._deployment = deployment
            self._apply(deployment)
            try:
                yield Deployed(f"{self.cell}.{AGGREGATE}", self.sender(), pipeline_file)
            finally:
                _remove_connector_and_slot(deployment)

    def _apply(self, deployment: Deployment) -> None:
        """Deploy the pipeline. Services that the fault of an earlier cell hit may still reject requests."""

        def poll() -> Observation[bool]:
            try:
                apply(deployment, silent)
            except (UnreachableError, RejectedError) as error:
                return Observation(None, error.message)
            return Observation(True, "applied")

        wait_for(f"the deployment of {self.cell}", poll, seconds=DEPLOY_S, interval=1)

    def state(self) -> str:
        try:
            status = self._deployment.connect.status(self._deployment.pipeline.connector.name)
        except OutboxKitError as error:
            return error.message
        return lifecycle.status_text(status)


class ExactlyOnceCdc(Cdc):
    """The connector, with exactly.once.source.support of the worker."""

    name = "cdc-exactly-once"
    description = "Outbox table, Debezium connector, exactly once"
    promise = Promise(no_duplicates=True)
    exactly_once = True


class MessageCdc(Cdc):
    """The connector, reading logical decoding messages instead of a table."""

    name = "cdc-messages"
    description = "Logical decoding messages without a table, Debezium connector, exactly once"
    promise = Promise(no_duplicates=True)
    exactly_once = True

    def sender(self) -> SenderSettings:
        return SenderSettings("messages", {"prefix": MESSAGE_PREFIX})

    def changes(self) -> dict[str, object]:
        source = {"message_prefix": MESSAGE_PREFIX, "publication": f"{self.cell}_p", "slot": f"{self.cell}_s"}
        return {"source": source, "connector": {"name": self.cell, "template": "outbox-postgres-messages"}}


def _remove_connector_and_slot(deployment: Deployment) -> None:
    """Remove the connector and its slot: the stack has one worker, and an unused slot retains WAL."""
    with suppress(OutboxKitError):
        lifecycle.remove(deployment.connect, deployment.pipeline.connector.name)
        with postgres_client.connected(deployment.environment.source) as connection:
            wait_inactive(connection, deployment.pipeline.source.slot)
            if read_slot(connection, deployment.pipeline.source.slot) is not None:
                postgres_client.drop_slot(connection, deployment.pipeline.source.slot)


CDC_WAYS: tuple[type[Way], ...] = (ExactlyOnceCdc, Cdc, MessageCdc)
