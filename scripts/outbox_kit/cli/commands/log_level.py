"""outbox log-level."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from outbox_kit.cli.console import print_json, print_message, print_table
from outbox_kit.cli.options import CommonOptions, Output, common_options


@common_options("output")
def log_level(
    common: CommonOptions,
    logger: Annotated[
        str | None, typer.Argument(metavar="LOGGER", help="Logger, such as io.debezium or root. Default: all loggers.")
    ] = None,
    level: Annotated[
        Literal["OFF", "FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE"] | None,
        typer.Argument(
            metavar="LEVEL",
            case_sensitive=False,
            help="New level until the worker restarts: OFF, FATAL, ERROR, WARN, INFO, DEBUG or TRACE.",
        ),
    ] = None,
) -> None:
    """Show a worker's log levels, or set a level on every worker."""
    with common.deployment(reads=["connect"], writes=["connect"] if level else ()) as deployment:
        if logger and level:
            deployment.connect.set_log_level(logger, level)
            # The message says `will`, because workers receive the change through a topic after the response.
            print_message(f"{logger} will log at {level} on every worker until the worker restarts")
            return
        loggers = deployment.connect.loggers()
    selected_loggers = {
        name: value for name, value in sorted(loggers.items()) if logger is None or f"{name}.".startswith(f"{logger}.")
    }
    if common.output is Output.JSON:
        print_json({"loggers": selected_loggers})
        return
    if logger is not None and logger not in selected_loggers:
        print_message(f"{logger} does not have its own level; it inherits the level of its parent logger")
    print_table(["logger", "level"], [list(entry) for entry in selected_loggers.items()])
