"""Define the base class of ways of sending. A way has a promise and applicable faults, and is deployed for a cell."""

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
    "kill-leader",
    "disk-full-kafka",
)
"""Names of the faults that hit Kafka or PostgreSQL. These faults apply to every way."""


@dataclass(frozen=True)
class Promise:
    """Guarantees that a way gives to consumers with isolation level read_committed."""

    no_loss: bool = True
    no_phantom: bool = True
    no_duplicates: bool = False
    in_order: bool = True


@dataclass
class Deployed:
    """A way that is deployed for one cell. `pipeline_file` is None if the Spark jobs cannot read the way's topic."""

    topic: str
    sender: SenderSettings
    pipeline_file: Path | None = None
    components: Mapping[str, Component] = field(default_factory=dict)
    deployment: Deployment | None = None


class Way(ABC):
    """A way of sending. Each cell has its own instance."""

    name: ClassVar[str]
    description: ClassVar[str]
    promise: ClassVar[Promise]
    faults: ClassVar[tuple[str, ...]]
    lossy_faults: ClassVar[frozenset[str]] = frozenset()
    """Names of the faults under which the way does not promise to deliver all events."""
    finds: ClassVar[str] = ""
    """Name of the count that must show the planted mistake of the sender, or empty if no mistake is planted."""
    strategies: ClassVar[tuple[str, ...]] = ()
    """Names of planted handlers that run as receivers."""

    @classmethod
    def promise_under(cls, fault: Fault) -> Promise:
        """Return the guarantees of the way under a fault. A repair of the pipeline can send events again.

        If a fault undoes commits, records of these commits may be on the topic.
        """
        return replace(
            cls.promise,
            no_loss=cls.promise.no_loss and fault.name not in cls.lossy_faults,
            no_phantom=cls.promise.no_phantom and not fault.undoes_commits,
            no_duplicates=cls.promise.no_duplicates and not fault.needs_repair,
        )

    def __init__(self, drill: DrillStack, cell: str) -> None:
        """Create the way for one cell. `cell` is part of the names of topics, slots and tables."""
        self.drill = drill
        self.cell = cell

    @abstractmethod
    def deployed(self) -> AbstractContextManager[Deployed]:
        """Create the resources of the way. At the end of the block, remove resources that would affect later cells."""

    def state(self) -> str:
        """Return a description of the state of the way's components, which can explain missing events."""
        return ""

    def detected(self) -> str:
        """Return the checks that detect the fault, each with its observation, or an empty string."""
        return ""

    def lacks_states(self) -> bool:
        """Return whether the service must write every state again after the repair."""
        return False

    def repair(self) -> list[str]:
        """Repair the damage that a fault caused. Return the output of the operators' command as notes."""
        return []
