"""log-level."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from outbox_kit.cli.console import print_json, print_table, say
from outbox_kit.cli.options import Common, Output


class Level(StrEnum):
    """Levels that Kafka Connect's loggers have."""

    OFF = "OFF"
    FATAL = "FATAL"
    ERROR = "ERROR"
    WARN = "WARN"
    INFO = "INFO"
    DEBUG = "DEBUG"
    TRACE = "TRACE"


def log_level(
    context: typer.Context,
    logger: Annotated[str | None, typer.Argument(help="For instance io.debezium or root. Default: show all.")] = None,
    level: Annotated[
        Level | None, typer.Argument(case_sensitive=False, help="Set on every worker, until its restart.")
    ] = None,
) -> None:
    """Show the log levels of the Connect workers, or set one."""
    common: Common = context.obj
    with common.deployment() as target:
        if logger and level:
            target.connect.set_log_level(logger, level.value)
            # Each worker hears of it through a topic, a moment later.
            say(f"{logger} will log at {level.value} on every worker, until its restart")
            return
        found = target.connect.loggers()
    shown = {name: value for name, value in sorted(found.items()) if logger is None or _belongs(name, logger)}
    if common.output is Output.JSON:
        print_json({"loggers": shown})
        return
    if logger is not None and logger not in shown:
        say(f"{logger} has no level of its own: it logs at its parent's")
    print_table(["logger", "level"], [list(entry) for entry in shown.items()])


def _belongs(name: str, logger: str) -> bool:
    return name == logger or name.startswith(f"{logger}.")
