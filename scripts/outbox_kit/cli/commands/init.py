"""Implement `outbox init`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from outbox_common.pipeline_files import FOLDER
from outbox_events.errors import ConfigurationError
from outbox_kit.cli.console import print_message, print_table, print_text
from outbox_kit.cli.options import CommonOptions, common_options
from outbox_kit.init import aggregates as grouping
from outbox_kit.init import project_files, project_folder, source_database
from outbox_kit.init.aggregates import AggregateTables
from outbox_kit.init.catalog import Table, read_tables
from outbox_kit.init.fields import open_choices, state_fields
from outbox_kit.init.source_database import SourceAddress
from outbox_kit.init.state_view import view_name
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
    _check_options(common, aggregate, add, name, writes=triggers or create_views)
    with source_database.opened(dsn, Stack(common.project_folder)) as connection:
        tables, address = read_tables(connection), source_database.address(connection)
        chosen = grouping.parse([*(aggregate or []), *(add or [])], tables)
        taken = source_database.taken_names(connection)
        if not chosen:
            _print_proposal(grouping.propose(tables, taken), tables, dsn)
            return
        source_database.refuse_taken_names(taken, chosen)
        if add:
            _add(common, chosen, with_triggers=triggers)
        else:
            project = project_files.check_name(name or project_files.project_name(address.database))
            _create(common, project, chosen, None if dsn is None else address, with_triggers=triggers)
        if create_views:
            for entry in chosen:
                statements = (common.project_folder / project_files.view_file(entry)).read_text(encoding="utf-8")
                existed = source_database.create_view(connection, entry, statements)
                print_message(f"{'replaced' if existed else 'created'} the view {view_name(entry)}")
    if aggregate and _is_deployed(common.project_folder):
        _print_changes(chosen, dsn, has_views=create_views)
    else:
        _print_next(chosen, dsn, address, with_triggers=triggers, has_views=create_views)


def _is_deployed(folder: Path) -> bool:
    """Return whether a lock file exists, in one of the folders that generated environment files name."""
    return any(path for pattern in ("connectors/*.lock.json", "build/*/*.lock.json") for path in folder.glob(pattern))


def _check_options(
    common: CommonOptions, aggregate: list[str] | None, add: list[str] | None, name: str | None, *, writes: bool
) -> None:
    if aggregate and add:
        raise typer.BadParameter("use --aggregate for a new project, and --add for an existing one", param_hint="--add")
    if not aggregate and name is not None:
        raise typer.BadParameter("it requires --aggregate", param_hint="--name")
    if not aggregate and not add and writes:
        raise typer.BadParameter("requires --aggregate or --add", param_hint="--triggers, --create-views")
    if aggregate and common.given_pipeline is not None:
        raise typer.BadParameter("use --name to name a new pipeline, and --add to extend this one", param_hint="-p")


def _create(
    common: CommonOptions,
    project: str,
    chosen: Sequence[AggregateTables],
    address: SourceAddress | None,
    *,
    with_triggers: bool,
) -> None:
    files = project_files.new_files(project, chosen, address, with_triggers=with_triggers)
    others = [path for path in sorted((common.project_folder / FOLDER).glob("*.yaml")) if path.stem != project]
    if others:
        hint = f"use --add to extend it, run the command in an empty folder, or add --name {others[0].stem}"
        raise ConfigurationError(f"the project already has the pipeline file {others[0]}", hint)
    _print_written(project_folder.write_files(common.project_folder, files))


def _add(common: CommonOptions, chosen: Sequence[AggregateTables], *, with_triggers: bool) -> None:
    path = common.pipeline
    pipeline, text = project_folder.extended_pipeline(path, chosen)
    source = pipeline.source if with_triggers else None
    files: dict[Path, str] = {}
    for aggregate in chosen:
        files |= project_files.aggregate_files(pipeline.name, aggregate, source)
    _print_written(project_folder.write_files(common.project_folder, files))
    path.write_bytes(text.encode())
    print_message(f"added {', '.join(aggregate.name for aggregate in chosen)} to {path}")


def _print_proposal(proposed: Sequence[AggregateTables], tables: Mapping[str, Table], dsn: str | None) -> None:
    rows = [
        [
            entry.name,
            ", ".join(table.full_name for table in entry.root.tables()),
            "unknown" if entry.root.table.rows is None else f"{entry.root.table.rows:,}",
        ]
        for entry in proposed
    ]
    print_table(["aggregate", "tables", "rows (estimate)"], rows)
    for name, reason in grouping.skipped(tables).items():
        print_message(f"{name} cannot be the first table of an aggregate: {reason}")
    if not proposed:
        raise ConfigurationError("the database has no table that can be an aggregate", "create its tables first")
    print_message("to write the files of a project in this folder, run this command with the aggregates that you want:")
    source = [] if dsn is None else ["--dsn", source_database.printable_dsn(dsn)]
    options = [part for entry in proposed for part in ("--aggregate", entry.option)]
    print_text(shlex.join(["outbox", "init", *source, *options]))


def _print_written(written: project_folder.Written) -> None:
    for path in written.created:
        print_message(f"wrote {path}")
    for path, difference in written.differing.items():
        if path.suffix == ".json":  # a copy of a file of outbox-kit
            print_message(f"{path} exists and was not changed; delete it to get the file of this version")
            continue
        print_message(f"{path} exists and was not changed; the difference to the proposed content:")
        print_text(difference.rstrip())


def _print_next(
    chosen: Sequence[AggregateTables],
    dsn: str | None,
    address: SourceAddress,
    *,
    with_triggers: bool,
    has_views: bool,
) -> None:
    for aggregate in chosen:
        for choice in open_choices(state_fields(aggregate)):
            print_message(f"{aggregate.name}.{choice}")
    print_message("review schemas/ and sql/, then run these commands:")
    if dsn is None:
        print_message("DSN is the address `postgres` of `outbox stack status`")
    psql = _psql(dsn)
    if not has_views:
        print_text(f"{psql} {_file_options([project_files.view_file(aggregate) for aggregate in chosen])}")
    if dsn is not None:
        print_text("outbox stack up")
        print_text(f"export OUTBOX_ADMIN_PASSWORD=...  # of {address.user}")
        print_text(f"outbox render --format sql | {psql}")
        print_text(f"{psql} --command '\\password outbox_connector'")
        print_text("(umask 077; echo password=... > build/stack/secrets/source.properties)  # of outbox_connector")
    print_text("outbox apply")
    if with_triggers:
        print_text(f"{psql} {_file_options([project_files.trigger_file(aggregate) for aggregate in chosen])}")
    print_text("outbox backfill && outbox verify --states")
    print_text("outbox-materialize")


def _print_changes(chosen: Sequence[AggregateTables], dsn: str | None, *, has_views: bool) -> None:
    """Print the commands for a deployed pipeline. A state with a field of no deployed schema is a dead letter."""
    names = " ".join(aggregate.name for aggregate in chosen)
    print_message("the pipeline is deployed: deploy changed schemas before the views, with these commands:")
    print_text("outbox apply")
    if not has_views:
        print_text(f"{_psql(dsn)} {_file_options([project_files.view_file(aggregate) for aggregate in chosen])}")
    print_text(f"outbox backfill --restart {names} && outbox verify --states")
    print_text("outbox-materialize")


def _psql(dsn: str | None) -> str:
    target = '"$DSN"' if dsn is None else shlex.quote(source_database.printable_dsn(dsn))
    return f"psql {target} --set ON_ERROR_STOP=1"


def _file_options(paths: Sequence[Path]) -> str:
    return " ".join(f"--file {path}" for path in paths)
