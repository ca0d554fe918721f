"""Read what `outbox verify` checks in Connect: every worker, conflicting connectors, the validated live config."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, TypeVar

from outbox_events.errors import OutboxError, UnreachableError
from outbox_kit.connect.client import ConnectClient, Validation
from outbox_kit.connect.config_diff import is_masked
from outbox_kit.connect.conflicts import Duplicate, duplicates, orphans, shared_topics
from outbox_kit.connect.state import ActualConnector, read_without_offsets
from outbox_kit.pipeline import Connect

T = TypeVar("T")
Endpoint = Literal["worker", "connectors", "offsets", "plugins", "validation"]
"""Endpoint of the worker that `observe` reads."""


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
    """Live state of Connect. `cluster_id` and `versions` belong to the worker in use.

    `workers` contains the workers in connect.workers. `errors` contains an entry for each endpoint that was not read.
    """

    actual: ActualConnector
    cluster_id: str
    versions: dict[str, str]
    workers: list[Worker]
    url: str
    shared: list[Duplicate]
    orphans: list[str]
    validation: Validation | None
    errors: dict[Endpoint, OutboxError] = field(default_factory=dict)


def observe(client: ConnectClient, service: Connect, name: str, desired: dict[str, str]) -> ObservedConnect:
    """Read the live state that the Connect checks need. Raises UnreachableError if the worker does not respond."""
    errors: dict[Endpoint, OutboxError] = {}

    def read(endpoint: Endpoint, request: Callable[[], T], default: T) -> T:
        try:
            return request()
        except OutboxError as error:
            errors[endpoint] = error
            return default

    cluster_id = read("worker", lambda: _cluster_id(client), "")
    if isinstance(errors.get("worker"), UnreachableError):
        raise errors["worker"]
    actual = read("connectors", lambda: read_without_offsets(client, name), ActualConnector(None, None, []))
    if actual.config is not None:
        actual = replace(actual, offsets=read("offsets", lambda: client.offsets(name), []))
    config = actual.config or desired
    shared = [entry for find in (duplicates, shared_topics) for entry in find(name, config, actual.other_connectors)]
    orphan_names = orphans(name, config, actual.other_connectors)
    return ObservedConnect(
        actual=actual,
        cluster_id=cluster_id,
        versions=read("plugins", client.plugin_versions, {}),
        workers=_read_workers(client, service.addresses if service.workers else []),
        url=client.url,
        shared=shared,
        orphans=orphan_names,
        validation=read("validation", lambda: _validate_live_config(client, name, actual.config, desired), None),
        errors=errors,
    )


def _validate_live_config(
    client: ConnectClient, name: str, config: dict[str, str] | None, desired: dict[str, str]
) -> Validation | None:
    """Validate the live config after replacing masked values with the values rendered from the files."""
    if config is None:
        return None
    unmasked_config = {key: desired.get(key, value) if is_masked(value) else value for key, value in config.items()}
    return client.validate(name, {key: value for key, value in unmasked_config.items() if key != "name"})


def _read_workers(client: ConnectClient, urls: list[str]) -> list[Worker]:
    """Read all workers in parallel, because a read from an unresponsive worker takes the entire time limit."""
    with ThreadPoolExecutor() as executor:
        return list(executor.map(partial(_read_worker, client), urls))


def _read_worker(client: ConnectClient, url: str) -> Worker:
    try:
        with closing(client.for_worker(url)) as worker:
            return Worker(url, worker.plugin_versions(), _cluster_id(worker))
    except OutboxError as error:
        return Worker(url, {}, error=error.message, hint=error.hint)


def _cluster_id(client: ConnectClient) -> str:
    return str(client.worker_info().get("kafka_cluster_id", ""))
