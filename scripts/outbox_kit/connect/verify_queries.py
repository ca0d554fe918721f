"""What only `outbox verify` asks Kafka Connect: every worker, other connectors, what a worker makes of the config."""

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
    """One worker's plugins with their versions, and its Kafka cluster; `error` says why they are not known."""

    url: str
    versions: dict[str, str]
    cluster: str = ""
    error: str = ""
    hint: str = ""


@dataclass(frozen=True)
class Observed:
    """Connect as it is: the connector, the worker that answered, the other workers, the other connectors."""

    actual: ActualConnector
    cluster: str
    versions: dict[str, str]
    workers: list[Worker]
    sharing: list[str]
    validation: Validation | None


def observe(client: ConnectClient, service: Connect, name: str, desired: dict[str, str]) -> Observed:
    """Ask everything that the checks look at. Raises UnreachableError, RejectedError."""
    actual = read_actual(client, name)
    return Observed(
        actual=actual,
        cluster=_cluster(client),
        versions=client.plugin_versions(),
        workers=[_worker(client, url) for url in (service.addresses if service.workers else ())],
        sharing=_sharing(name, actual.config or desired, actual),
        validation=_validation(client, name, actual.config, desired),
    )


def _sharing(name: str, config: dict[str, str], actual: ActualConnector) -> list[str]:
    """Connectors that share what must be one's own; also the pipeline's own under another name: it reads, too."""
    copies = [f"connector {other!r} is this pipeline's too" for other in orphans(name, config, actual.others)]
    return [*(entry.words for entry in duplicates(name, config, actual.others)), *copies]


def _validation(
    client: ConnectClient, name: str, config: dict[str, str] | None, desired: dict[str, str]
) -> Validation | None:
    """What the worker says of the live config; a value that it masks is taken from the rendered one."""
    if config is None:
        return None
    unmasked = {key: desired.get(key, value) if is_masked(value) else value for key, value in config.items()}
    return client.validate(name, {key: value for key, value in unmasked.items() if key != "name"})


def _worker(client: ConnectClient, url: str) -> Worker:
    try:
        with closing(client.at(url)) as worker:
            return Worker(url, worker.plugin_versions(), _cluster(worker))
    except OutboxKitError as error:
        return Worker(url, {}, error=error.message, hint=error.hint)


def _cluster(client: ConnectClient) -> str:
    return str(client.root().get("kafka_cluster_id", ""))
