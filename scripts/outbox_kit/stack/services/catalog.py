"""The parts of the stack, and what each needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from outbox_kit.errors import ConfigurationError
from outbox_kit.stack.services.connect import Connect
from outbox_kit.stack.services.kafka import Kafka
from outbox_kit.stack.services.postgres import Postgres
from outbox_kit.stack.services.registry import Registry
from outbox_kit.stack.services.service import Context, Part

PARTS: dict[str, Callable[[Context], Part]] = {
    "postgres": Postgres,
    "kafka": Kafka,
    "registry": Registry,
    "connect": Connect,
}
NEEDS = {"postgres": (), "kafka": (), "registry": Registry.after, "connect": Connect.after}
# Who stops first: the worker leaves its group and the registry closes its sessions while both servers run.
STOP_ORDER = (("connect", "registry"), ("kafka", "postgres"))


def select(names: Iterable[str] | None) -> tuple[str, ...]:
    """Return the parts to start, in order: all, or those named and what they need."""
    if names is None:
        return tuple(PARTS)
    wanted = set(names)
    unknown = sorted(wanted - set(PARTS))
    if unknown or not wanted:
        message = f"no such part: {', '.join(unknown)}" if unknown else "no part was named"
        raise ConfigurationError(message, f"parts: {', '.join(PARTS)}")
    for name in tuple(wanted):
        wanted.update(NEEDS[name])
    return tuple(name for name in PARTS if name in wanted)


def needs_java(names: Iterable[str]) -> bool:
    """Tell whether any of these parts is a JVM."""
    return any(name != "postgres" for name in names)


def build(names: Iterable[str], context: Context) -> list[Part]:
    """Build the parts named."""
    return [PARTS[name](context) for name in names]
