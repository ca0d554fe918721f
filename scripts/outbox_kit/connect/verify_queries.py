"""Requests of `outbox verify` to Connect: every worker, conflicts of connectors, validation of the live config."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

from outbox_kit.connect.client import ConnectClient, Validation
from outbox_kit.connect.config_diff import is_masked
from outbox_kit.connect.conflicts import duplicates, orphans
from outbox_kit.connect.state import ActualConnector, read_actual
from outbox_kit.errors import OutboxKitError
from outbox_kit.pipeline import Connect


@dataclass(frozen=True)
class Worker:
    """Plugin versions and Kafka cluster id of one worker, or the `error` if they could not be read."""

    url: str
    versions: dict[str, str]
    cluster_id: str = ""
    error: str = ""
    hint: str = ""


@dataclass(frozen=True)
class ObservedConnect:
    """Live state of Connect: `cluster_id` and `versions` of the worker in use, `workers` of connect.workers."""

    actual: ActualConnector
    cluster_id: str
    versions: dict[str, str]
    workers: list[Worker]
    conflicts: list[str]
    validation: Validation | None


def observe(client: ConnectClient, service: Connect, name: str, desired: dict[str, str]) -> ObservedConnect:
    """Read the live state that the Connect checks need. Raises UnreachableError, RejectedError."""
    actual = read_actual(client, name)
    config = actual.config or desired
    orphan_names = orphans(name, config, actual.other_connectors)
    orphan_texts = [f"connector {orphan!r} also belongs to this pipeline" for orphan in orphan_names]
    return ObservedConnect(
        actual=actual,
        cluster_id=_cluster_id(client),
        versions=client.plugin_versions(),
        workers=[_read_worker(client, url) for url in (service.addresses if service.workers else ())],
        conflicts=[*(entry.text for entry in duplicates(name, config, actual.other_connectors)), *orphan_texts],
        validation=_validate_live_config(client, name, actual.config, desired),
    )


def _validate_live_config(
    client: ConnectClient, name: str, config: dict[str, str] | None, desired: dict[str, str]
) -> Validation | None:
    """Validate the live config, with masked values replaced by the values rendered from the files."""
    if config is None:
        return None
    unmasked_config = {key: desired.get(key, value) if is_masked(value) else value for key, value in config.items()}
    return client.validate(name, {key: value for key, value in unmasked_config.items() if key != "name"})


def _read_worker(client: ConnectClient, url: str) -> Worker:
    try:
        with closing(client.for_worker(url)) as worker:
            return Worker(url, worker.plugin_versions(), _cluster_id(worker))
    except OutboxKitError as error:
        return Worker(url, {}, error=error.message, hint=error.hint)


def _cluster_id(client: ConnectClient) -> str:
    return str(client.worker_info().get("kafka_cluster_id", ""))
