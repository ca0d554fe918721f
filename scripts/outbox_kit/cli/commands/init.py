"""Implement `outbox init`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from outbox_events.errors import ConfigurationError
from outbox_kit.cli.console import print_message, print_table, print_text
from outbox_kit.cli.options import CommonOptions, common_options
from outbox_kit.init import aggregates as grouping
from outbox_kit.init import database, project_files, project_folder
from outbox_kit.init.aggregates import AggregateTables
from outbox_kit.init.catalog import Table, read_tables
from outbox_kit.init.fields import open_choices
from outbox_kit.stack import Stack


@common_options()
def init(
    common: CommonOptions,
    dsn: Annotated[
        str | None,
        typer.Option(
            "--dsn",
            metavar="DSN",
            help="Read this database: a URI, or keywords such as service=NAME. Default: the embedded stack.",
        ),
    ] = None,
    aggregate: Annotated[
        list[str] | None,
        typer.Option("--aggregate", metavar="NAME=TABLES", help=f"Write files for an aggregate: {grouping.FORM}."),
    ] = None,
    add: Annotated[
        list[str] | None,
        typer.Option("--add", metavar="NAME=TABLES", help="Add an aggregate to the existing pipeline file."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="Name of the pipeline. Default: the name of the database."),
    ] = None,
    triggers: Annotated[
        bool,
        typer.Option("--triggers", help="Also write triggers, for a service that cannot be changed to write events."),
    ] = False,
    create_views: Annotated[
        bool, typer.Option("--create-views", help="Also create the views of sql/ in the database.")
    ] = False,
) -> None:
    """Write the files of a project for an existing database.

    Without --aggregate and --add, the command lists the tables and proposes aggregates. Otherwise it writes an Avro
    schema and a view of each aggregate's state, the pipeline file, an environment file, a CI file and a test. It does
    not overwrite files: if a file has other content, it prints the difference. Unless --create-views is given, it
    changes nothing in the database.
    """
    if aggregate and add:
        raise typer.BadParameter("use --aggregate for a new project, and --add for an existing one", param_hint="--add")
    with database.opened(dsn, Stack(common.project_folder)) as connection:
        tables, source = read_tables(connection), database.address(connection)
        chosen = grouping.parse([*(aggregate or []), *(add or [])], tables)
        if not chosen:
            _print_proposal(tables, connection_string=database.without_password(dsn))
            return
        if add:
            _add(common, chosen, with_triggers=triggers)
        else:
            project = project_files.check_name(name or project_files.project_name(source.name))
            address = None if dsn is None else source
            files = project_files.new_files(project, chosen, address, with_triggers=triggers)
            _print_written(project_folder.write_files(common.project_folder, files))
        if create_views:
            database.create_views(connection, chosen)
    _print_next(chosen, database.without_password(dsn), source.user, has_views=create_views)


def _add(common: CommonOptions, chosen: Sequence[AggregateTables], *, with_triggers: bool) -> None:
    path = common.pipeline
    name, text = project_folder.extended_pipeline(path, chosen)
    for aggregate in chosen:
        files = project_files.aggregate_files(name, aggregate, with_triggers=with_triggers)
        _print_written(project_folder.write_files(common.project_folder, files))
    path.write_text(text)
    print_message(f"added {', '.join(aggregate.name for aggregate in chosen)} to {path}")


def _print_proposal(tables: Mapping[str, Table], *, connection_string: str | None) -> None:
    proposed = grouping.propose(tables)
    rows = [
        [entry.name, ", ".join(table.full_name for table in entry.root.tables()), f"{entry.root.table.rows:,}"]
        for entry in proposed
    ]
    print_table(["aggregate", "tables", "rows (estimate)"], rows)
    for name, reason in grouping.skipped(tables).items():
        print_message(f"{name} cannot be an aggregate: {reason}")
    if not proposed:
        raise ConfigurationError("the database has no table that can be an aggregate", "create its tables first")
    print_message("to write the files of a project in this folder, run this command with the aggregates that you want:")
    source = [] if connection_string is None else ["--dsn", connection_string]
    options = [part for entry in proposed for part in ("--aggregate", entry.option)]
    print_text(shlex.join(["outbox", "init", *source, *options]))


def _print_written(written: project_folder.Written) -> None:
    for path in written.created:
        print_message(f"wrote {path}")
    for path, difference in written.differing.items():
        print_message(f"{path} exists and was not changed; the difference to the proposed content:")
        print_text(difference.rstrip())


def _print_next(
    chosen: Sequence[AggregateTables], connection_string: str | None, user: str, *, has_views: bool
) -> None:
    for aggregate in chosen:
        for choice in open_choices(aggregate):
            print_message(f"{aggregate.name}.{choice}")
    print_message("review schemas/ and sql/, then run these commands:")
    if not has_views:
        database_option = "DSN" if connection_string is None else shlex.quote(connection_string)
        files = " ".join(f"--file sql/{aggregate.name}_state.sql" for aggregate in chosen)
        print_text(f"psql {database_option} {files}")
    if connection_string is not None:
        psql = f"psql {shlex.quote(connection_string)} --set ON_ERROR_STOP=1"
        print_text("outbox stack up")
        print_text(f"export OUTBOX_ADMIN_PASSWORD=...  # of {user}")
        print_text(f"outbox render --format sql | {psql}")
        print_text(f"{psql} --command '\\password outbox_connector'")
        print_text("echo password=... > build/stack/secrets/source.properties  # of outbox_connector")
    print_text("outbox apply && outbox backfill && outbox verify --states")
    print_text("outbox-materialize")
