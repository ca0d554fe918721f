"""outbox render."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer

from outbox_kit import deployment
from outbox_kit.cli.console import print_json
from outbox_kit.cli.options import CommonOptions, common_options


class Format(StrEnum):
    """Values of --format of `outbox render`."""

    CONNECT = "connect"
    SQL = "sql"


@common_options()
def render(
    common: CommonOptions,
    output_format: Annotated[
        Format, typer.Option("--format", help="connect: connector config as JSON; sql: database objects as a script.")
    ] = Format.CONNECT,
) -> None:
    """Print the connector config or database script of a pipeline.

    The command reads only files. Placeholders that the Connect worker resolves are printed unresolved.
    """
    if output_format is Format.SQL:
        sys.stdout.write(deployment.render_sql(common.pipeline, common.environment, common.overrides))
        return
    name, config = deployment.render_config(common.pipeline, common.environment, common.overrides)
    print_json({"name": name, "config": config})
