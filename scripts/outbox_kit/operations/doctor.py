"""Find what prevents a deployment: systems that do not respond, and missing privileges and settings in PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from outbox_events.errors import OutboxError
from outbox_kit.deployment import Deployment
from outbox_kit.pipeline import Login
from outbox_kit.postgres import client as postgres_client
from outbox_kit.postgres.privileges import Missing, missing_privileges, read_access

READ_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class SystemResult:
    """Result of one request to a system. `error` is empty if the system responded."""

    system: str
    address: str
    error: str


@dataclass(frozen=True)
class Diagnosis:
    """Results for all systems. `missing` is empty if PostgreSQL does not respond."""

    systems: list[SystemResult]
    missing: list[Missing]

    @property
    def is_healthy(self) -> bool:
        """Whether every system responds and nothing is missing."""
        return not self.missing and not any(result.error for result in self.systems)


def diagnose(deployment: Deployment) -> Diagnosis:
    """Send one request to each system, and compare the privileges in PostgreSQL with the required ones."""
    source, missing, pipeline = deployment.environment.source, list[Missing](), deployment.pipeline
    subject = pipeline.subject_of(next(iter(pipeline.aggregates)))  # a login can be limited to the pipeline's subjects
    with deployment.bounded(READ_TIMEOUT_S) as bounded:
        address = f"{source.host}:{source.port}/{source.database}"
        systems = [_request(f"postgres ({source.admin.user})", address, lambda: missing.extend(_missing(bounded)))]
        if source.verifier is not None:
            login = source.verifier
            systems.append(_request(f"postgres ({login.user})", address, lambda: _log_in(bounded, login)))
        kafka = deployment.environment.kafka.bootstrap_servers
        systems += [
            _request("kafka", kafka, bounded.kafka.cluster_id),
            _request("registry", bounded.registry.url, lambda: bounded.registry.compatibility(subject)),
            _request("connect", bounded.connect.url, bounded.connect.worker_info),
        ]
    return Diagnosis(systems, missing)


def _request(system: str, address: str, action: Callable[[], object]) -> SystemResult:
    try:
        action()
        return SystemResult(system, address, "")
    except OutboxError as error:
        return SystemResult(system, address, "; ".join(filter(None, (error.message, error.hint))))


def _log_in(deployment: Deployment, login: Login) -> None:
    with postgres_client.connected(deployment.environment.source, login, seconds=READ_TIMEOUT_S):
        pass


def _missing(deployment: Deployment) -> list[Missing]:
    pipeline, environment = deployment.pipeline, deployment.environment
    with postgres_client.connected(environment.source, seconds=READ_TIMEOUT_S) as connection:
        access = read_access(connection, pipeline, environment, with_queries=True)
    return missing_privileges(pipeline, environment, access)
