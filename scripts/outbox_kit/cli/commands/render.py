"""Implement `outbox render`."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

import typer

from outbox_kit import deployment
from outbox_kit.cli.console import print_json
from outbox_kit.cli.options import CommonOptions, common_options


@common_options()
def render(
    common: CommonOptions,
    output_format: Annotated[
        Literal["connect", "sql"],
        typer.Option("--format", help="Print the connector config as JSON (connect) or an SQL script (sql)."),
    ] = "connect",
    target: Annotated[
        str | None,
        typer.Option(
            "--target", metavar="NAME", help="With --format sql: print the script for this PostgreSQL target."
        ),
    ] = None,
) -> None:
    """Print the connector config, or an SQL script.

    The command reads files and does not open connections. Placeholders for the Connect worker are not resolved.
    """
    if target is not None and output_format != "sql":
        raise typer.BadParameter("use it with --format sql", param_hint="--target")
    if output_format == "sql":
        text = deployment.render_sql(common.pipeline, common.environment, common.overrides, target=target)
        sys.stdout.write(text)
        return
    name, config = deployment.render_config(common.pipeline, common.environment, common.overrides)
    print_json({"name": name, "config": config})
