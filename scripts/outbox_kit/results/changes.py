"""Represent one difference between the desired and the actual state of a system."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

System = Literal["postgres", "kafka", "registry", "connect"]
Action = Literal["create", "update", "delete", "adopt"]
"""`adopt` records an existing object in the lock file, which does not contain it."""
DatabaseKind = Literal["database", "table", "grant to", "publication", "slot"]
ConnectorKind = Literal["connector", "offsets", "start", "state"]
Kind = Literal[DatabaseKind, "cluster", "topic", "registry", "compatibility", "schema", ConnectorKind]
KINDS: tuple[Kind, ...] = get_args(Kind)
# Operations on a connector that do not create, update or delete its config, by kind of change.
CONNECTOR_OPERATIONS: dict[Kind, str] = {"start": "start", "state": "change state of", "offsets": "reset offsets of"}


@dataclass(frozen=True)
class Change:
    """One pending change of one object. `danger` names data that the change can lose. Such a change needs `--allow`.

    `loss` names data that was lost before, and the commands that restore it after the change.
    """

    system: System
    kind: Kind
    name: str
    action: Action
    reason: str
    before: str = ""
    after: str = ""
    danger: str = ""
    loss: str = ""

    @property
    def object(self) -> str:
        """Kind and name of the object, as written in `--allow` and in the JSON form of a plan."""
        return f"{self.kind} {self.name}"

    @property
    def operation(self) -> str:
        """Name of the operation, as printed in the column `action`, such as `create`, `start` or `change state`."""
        return CONNECTOR_OPERATIONS.get(self.kind, self.action).removesuffix(" of")

    @property
    def target(self) -> str:
        """Name of the object for messages. For the kinds in CONNECTOR_OPERATIONS, the object is the connector."""
        return f"connector {self.name}" if self.kind in CONNECTOR_OPERATIONS else self.object

    @property
    def title(self) -> str:
        """Operation and target as one phrase, such as `create topic shop.order` or `start connector shop-outbox`."""
        return f"{CONNECTOR_OPERATIONS.get(self.kind, self.action)} {self.target}"

    def to_dict(self) -> dict[str, str]:
        """Return the change in the JSON format that docs/plan.md describes."""
        return {
            "system": self.system,
            "object": self.object,
            "action": self.action,
            "why": self.reason,
            "before": self.before,
            "after": self.after,
            "danger": self.danger,
            "loss": self.loss,
        }


def parse_object(text: str) -> tuple[Kind, str]:
    """Split the `object` of a plan's JSON form into kind and name. Raises ValueError for an unknown kind."""
    for kind in KINDS:
        if text.startswith(f"{kind} "):
            return kind, text.removeprefix(f"{kind} ")
    message = f"unknown kind of object: {text!r}"
    raise ValueError(message)
