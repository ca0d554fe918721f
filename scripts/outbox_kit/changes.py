"""One difference between what the files want and what a system has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

System = Literal["postgres", "kafka", "registry", "connect"]
Action = Literal["create", "update", "delete"]


@dataclass(frozen=True)
class Change:
    """What `apply` would do to one object, and why.

    `danger` says in words what can be lost; empty where nothing can. A dangerous change needs `--allow`.
    """

    system: System
    object: str
    action: Action
    why: str
    before: str = ""
    after: str = ""
    danger: str = ""
