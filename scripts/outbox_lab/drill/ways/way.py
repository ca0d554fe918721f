"""A way of sending under test: its promise, the faults that apply to it, and its deployment for one cell."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from outbox_kit.deployment import Deployment
from outbox_lab.drill.components import Component
from outbox_lab.drill.faults.fault import Fault
from outbox_lab.drill.senders.sender import SenderSettings
from outbox_lab.drill.stack import DrillStack

STACK_FAULTS = (
    "kill-kafka",
    "kill-postgres",
    "pause-kafka",
    "pause-postgres",
    "restart-kafka",
    "restart-postgres",
    "reset-connection",
    "slow-connection",
    "disk-full-kafka",
)
"""Faults of Kafka and PostgreSQL, which apply to every way."""


@dataclass(frozen=True)
class Promise:
    """What a way promises to a consumer with isolation level read_committed."""

    no_loss: bool = True
    no_phantom: bool = True
    no_duplicates: bool = False
    in_order: bool = True


@dataclass
class Deployed:
    """A way, deployed for one cell. `pipeline_file` is None if the Spark jobs cannot read its topic."""

    topic: str
    sender: SenderSettings
    pipeline_file: Path | None = None
    components: Mapping[str, Component] = field(default_factory=dict)
    deployment: Deployment | None = None


class Way(ABC):
    """A way of sending. One instance per cell."""

    name: ClassVar[str]
    description: ClassVar[str]
    promise: ClassVar[Promise]
    faults: ClassVar[tuple[str, ...]]
    lossy_faults: ClassVar[frozenset[str]] = frozenset()
    """Faults under which the way cannot promise that no event is lost, by name."""

    @classmethod
    def promise_under(cls, fault: Fault) -> Promise:
        """Return what the way promises under a fault. The repair of a pipeline may send events again."""
        return replace(
            cls.promise,
            no_loss=cls.promise.no_loss and fault.name not in cls.lossy_faults,
            no_duplicates=cls.promise.no_duplicates and not fault.needs_repair,
        )

    def __init__(self, drill: DrillStack, cell: str) -> None:
        """`cell` names the topics, the slot and the tables of the cell."""
        self.drill = drill
        self.cell = cell

    @abstractmethod
    def deployed(self) -> AbstractContextManager[Deployed]:
        """Create what the way needs; remove what would affect the next cells at the end."""

    def state(self) -> str:
        """Describe the state of the way's components, for a cell in which events are missing."""
        return ""

    def detected(self) -> str:
        """Return the checks that report the fault, with what they saw; empty if no check does."""
        return ""

    def lacks_states(self) -> bool:
        """Return whether the service must write every state again after the repair."""
        return False

    def repair(self) -> list[str]:
        """Repair what a fault broke, as an operator would; return what the repair reports, for the notes."""
        return []
