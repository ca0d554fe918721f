"""Declare the common options, which can be given before or after the command."""

from __future__ import annotations

import functools
import inspect
import shlex
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, fields
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from outbox_common.interrupts import ended_by_signals
from outbox_common.pipeline_files import FOLDER, only_pipeline_file
from outbox_kit.cli.console import commands_completed, print_message, waiting

if TYPE_CHECKING:
    from outbox_kit.deployment import Deployment
    from outbox_kit.pipeline import Overrides
    from outbox_kit.results.changes import System

WaitOption = Annotated[
    float, typer.Option("--wait", min=0, metavar="SECONDS", help="Wait at most this long for another command to exit.")
]
AllowOption = Annotated[
    list[str] | None,
    typer.Option("--allow", metavar="OBJECT", help="Allow a dangerous change to this object; repeatable."),
]
SlotWaitOption = Annotated[
    float,
    typer.Option("--wait", min=0.1, metavar="SECONDS", help="Wait at most this long for the slot to confirm rows."),
]
SkipRowsOption = Annotated[
    bool, typer.Option("--skip-rows", help="Accept an offset that skips rows. Skipped rows are lost.")
]
WAITS_FOR_SYSTEMS = "wait for responses of PostgreSQL, Kafka, the registry and Connect"


class Output(StrEnum):
    """Format of the data on stdout."""

    TABLE = "table"
    JSON = "json"


@dataclass(frozen=True)
class CommonOptions:
    """Values of the common options on one command line. `given_pipeline` is None without -p and OUTBOX_PIPELINE."""

    given_pipeline: Path | None
    environment: str
    settings: tuple[str, ...] = ()
    output: Output = Output.TABLE
    yes: bool = False
    debug: bool = False

    @property
    def pipeline(self) -> Path:
        """Pipeline file. Raises UsageError if none is given and the project does not have exactly one."""
        return self.given_pipeline or only_pipeline_file()

    @property
    def overrides(self) -> Overrides:
        """Values of --set, which override the values in the files."""
        from outbox_kit.pipeline import Overrides  # noqa: PLC0415 - as in deployment()

        return Overrides(self.settings)

    @property
    def project_folder(self) -> Path:
        """Folder that contains connectors/ and build/."""
        return (self.given_pipeline or FOLDER / "any").resolve().parent.parent

    @property
    def arguments(self) -> str:
        """Options with which a command in another shell selects the same pipeline and environment.

        Values that override the environment file are omitted, because they can be secrets.
        """
        settings = [
            f"{entry.partition('=')[0]}=..." if entry.startswith("environment.") else entry for entry in self.settings
        ]
        pipeline = ["-p", str(self.given_pipeline)] if self.given_pipeline else []
        return shlex.join([*pipeline, "-e", self.environment, *chain(*(("--set", entry) for entry in settings))])

    @contextmanager
    def deployment(
        self,
        *,
        reads: Collection[System] = (),
        writes: Collection[System] = (),
        shows_waiting: bool = True,
        is_first: bool = False,
    ) -> Iterator[Deployment]:
        """Load the deployment's files, and close its connections at the end.

        If the command `writes` to a system, raise RefusedError unless every system is the one of the lock file. Only a
        command that `is_first` for a pipeline needs no lock file.
        Otherwise print a warning for each system that the command `reads` and that is not. On a terminal, show what the
        command waits for, unless `shows_waiting` is false.
        """
        with ended_by_signals():
            from outbox_kit.deployment import open_deployment  # noqa: PLC0415 - `--help` must not import the deployment
            from outbox_kit.deployment.identity import (  # noqa: PLC0415
                IDENTIFIED_SYSTEMS,
                foreign_systems,
                refuse_foreign_systems,
            )

        shown = waiting.running(WAITS_FOR_SYSTEMS) if shows_waiting else nullcontext()
        with open_deployment(self.pipeline, self.environment, self.overrides) as deployment, shown:
            if writes:
                # A connector can also be stopped after its database was replaced.
                compared = ("connect",) if set(writes) == {"connect"} else IDENTIFIED_SYSTEMS
                refuse_foreign_systems(deployment, print_message, needs=writes, compared=compared, is_first=is_first)
            else:
                for problem in foreign_systems(deployment, reads):
                    print_message(f"warning: {problem}")
            yield deployment


def _declarations(
    given_pipeline: Annotated[
        Path | None,
        typer.Option(
            "-p",
            "--pipeline",
            metavar="FILE",
            help="Read this pipeline file. Default: the only file connectors/*.yaml.",
            envvar="OUTBOX_PIPELINE",
        ),
    ] = None,
    environment: Annotated[
        str,
        typer.Option(
            "-e",
            "--environment",
            metavar="NAME",
            help="Read environments/NAME.yaml next to the pipeline file.",
            envvar="OUTBOX_ENVIRONMENT",
        ),
    ] = "local",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Override KEY of the pipeline file. environment.KEY overrides the environment file. Repeatable.",
        ),
    ] = None,
    output: Annotated[Output, typer.Option("--output", help="Format of the data on stdout.")] = Output.TABLE,
    yes: Annotated[bool, typer.Option("--yes", help="Skip confirmation.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Declare each common option. Only the signature is used."""


DECLARATIONS = inspect.signature(_declarations, eval_str=True).parameters


def common_options(*optional: Literal["output", "yes"]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds common options to a command, and passes them as its first argument."""
    common_parameters = [
        DECLARATIONS[name] for name in ("given_pipeline", "environment", "settings", *optional, "debug")
    ]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(context: typer.Context, **values: Any) -> None:  # noqa: ANN401 - types of the command's options
            command_values = {name: value for name, value in values.items() if name not in DECLARATIONS}
            common = _merge_common_options(context)
            with commands_completed(common.arguments):
                command(common, **command_values)

        _, *command_parameters = inspect.signature(command, eval_str=True).parameters.values()
        context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
        parameters = [context, *(item.replace(kind=context.kind) for item in [*command_parameters, *common_parameters])]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return decorate


def _merge_common_options(context: typer.Context) -> CommonOptions:
    """Merge the options given before and after the command. All --set apply; of other options, the last value does."""
    contexts: list[Any] = [context]
    while contexts[0].parent is not None:
        contexts.insert(0, contexts[0].parent)
    values = dict(contexts[0].params)
    for inner_context in contexts[1:]:
        for name in DECLARATIONS.keys() & inner_context.params.keys():
            if inner_context.get_parameter_source(name).name == "COMMANDLINE":
                values[name] = inner_context.params[name]
    values["settings"] = tuple(setting for entry in contexts for setting in entry.params["settings"] or ())
    return CommonOptions(**{field.name: values[field.name] for field in fields(CommonOptions)})
