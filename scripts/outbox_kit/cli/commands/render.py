"""render."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer

from outbox_kit import deployment
from outbox_kit.cli.console import print_json
from outbox_kit.cli.options import Common


class Format(StrEnum):
    """What is rendered."""

    CONNECT = "connect"
    SQL = "sql"


def render(
    context: typer.Context,
    form: Annotated[
        Format,
        typer.Option("--format", help="The connector config as JSON, or the database part as SQL for a DBA."),
    ] = Format.CONNECT,
) -> None:
    """Print what would be deployed, from the files alone. Placeholders of the worker stay as they are."""
    common: Common = context.obj
    if form is Format.SQL:
        sys.stdout.write(deployment.render_sql(common.pipeline, common.environment, common.overrides))
        return
    name, config = deployment.render_files(common.pipeline, common.environment, common.overrides)
    print_json({"name": name, "config": config})
