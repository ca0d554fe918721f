"""List the stack's services in start order and in stop order, and select services by name."""

from __future__ import annotations

from collections.abc import Iterable

from outbox_events.errors import ConfigurationError
from outbox_kit.stack.services.connect import Connect
from outbox_kit.stack.services.kafka import Kafka
from outbox_kit.stack.services.postgres import Postgres
from outbox_kit.stack.services.registry import Registry
from outbox_kit.stack.services.service import Service

SERVICES: dict[str, type[Service]] = {service.name: service for service in (Postgres, Kafka, Registry, Connect)}
# Dependent services stop first, so that the worker can leave its group and the registry can end its sessions.
STOP_ORDER = (
    tuple(name for name, service in SERVICES.items() if service.requires),
    tuple(name for name, service in SERVICES.items() if not service.requires),
)


def select_services(names: Iterable[str] | None) -> tuple[str, ...]:
    """Return the services to start, in start order: all services, or `names` and the services that they require."""
    if names is None:
        return tuple(SERVICES)
    selected_names = set(names)
    unknown_names = sorted(selected_names - set(SERVICES))
    if unknown_names or not selected_names:
        message = f"unknown service: {', '.join(unknown_names)}" if unknown_names else "no service was named"
        raise ConfigurationError(message, f"use one or more of: {', '.join(SERVICES)}")
    selected_names.update(required for name in tuple(selected_names) for required in SERVICES[name].requires)
    return tuple(name for name in SERVICES if name in selected_names)


def needs_java(names: Iterable[str]) -> bool:
    """Return whether any of these services runs in a JVM."""
    return any(name != Postgres.name for name in names)
