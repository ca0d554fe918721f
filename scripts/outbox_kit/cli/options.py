"""The options that every command shares, wherever on the line they stand."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from outbox_kit.deployment import Deployment, open_deployment
from outbox_kit.pipeline import Overrides


class Output(StrEnum):
    """Form of what goes to stdout."""

    TABLE = "table"
    JSON = "json"


@dataclass(frozen=True)
class Common:
    """The global options of one call."""

    pipeline: Path
    environment: str
    output: Output
    yes: bool
    debug: bool
    settings: tuple[str, ...] = ()
    """What `--set` was given."""

    @property
    def overrides(self) -> Overrides:
        """What wins over the files in this call."""
        return Overrides(self.settings)

    @property
    def project(self) -> Path:
        """The folder that holds connectors/ and build/."""
        return self.pipeline.resolve().parent.parent

    def deployment(self) -> AbstractContextManager[Deployment]:
        """The pipeline and environment files, read; connections are closed at the end."""
        return open_deployment(self.pipeline, self.environment, self.overrides)


WITH_VALUE = frozenset({"-p", "--pipeline", "-e", "--environment", "--set", "--output"})
ATTACHED = frozenset({"-p", "-e"})  # -eproduction
FLAGS = frozenset({"--yes", "--debug"})


def hoist(arguments: list[str]) -> list[str]:
    """Move global options to the front, where the parser looks for them: `outbox verify --output json`.

    What follows `--` stays where it is.
    """
    front: list[str] = []
    rest: list[str] = []
    remaining = iter(arguments)
    for argument in remaining:
        if argument == "--":
            return [*front, *rest, argument, *remaining]
        attached = argument[:2] in ATTACHED and len(argument) > len("-p")
        if argument in FLAGS or attached or argument.partition("=")[0] in WITH_VALUE:
            front.append(argument)
            if argument in WITH_VALUE:
                front.extend(value for value in [next(remaining, None)] if value is not None)
        else:
            rest.append(argument)
    return [*front, *rest]
