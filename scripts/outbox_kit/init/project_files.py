"""Render the files of a project: pipeline and environment file, schemas, SQL, CI and a test."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined

from outbox_events.errors import ConfigurationError
from outbox_kit import __version__
from outbox_kit.init import triggers
from outbox_kit.init.aggregates import AggregateTables
from outbox_kit.init.fields import schema
from outbox_kit.init.state_view import backfill_query, create_view, view_name
from outbox_kit.pipeline.render import packaged_connectors
from outbox_kit.postgres import ddl

OUTBOX_TABLE = "public.outbox_event"
TEST_DSN = "STATES_DSN"
"""Environment variable with the DSN for the generated test."""
TEMPLATES = Environment(
    loader=PackageLoader("outbox_kit.init"),
    undefined=StrictUndefined,
    keep_trailing_newline=True,
    autoescape=False,  # noqa: S701 - no HTML
)
NAME = re.compile(r"[a-z][a-z0-9_]{0,50}")
"""Name of a project, which is also part of names of a slot, a publication, topics and an Avro namespace."""


@dataclass(frozen=True)
class Database:
    """Address and login of an existing source database."""

    host: str
    port: int
    name: str
    user: str


def project_name(text: str) -> str:
    """Return the name of a project for a database name: in lower case, with `_` in place of other characters."""
    name = re.sub(r"[^a-z0-9_]", "_", text.lower())[:50]
    return name if NAME.fullmatch(name) else f"p_{name}"[:50]


def check_name(name: str) -> str:
    """Return the name. Raises ConfigurationError if it is not valid in all places where a project's name is used."""
    if NAME.fullmatch(name) is None:
        hint = "use lower-case letters, digits and underscores, as in --name shop"
        raise ConfigurationError(f"--name {name!r} is not valid", hint)
    return name


def new_files(
    name: str, aggregates: Sequence[AggregateTables], database: Database | None, *, with_triggers: bool
) -> dict[Path, str]:
    """Return the text of every file of a new project by its path. `database` is None for the embedded stack."""
    entries = [
        {
            "name": aggregate.name,
            "entry": pipeline_entry(aggregate),
            "materialization": materialization_entry(aggregate),
            "view": ddl.quoted_text(view_name(aggregate)),
        }
        for aggregate in aggregates
    ]
    topics = ", ".join(f"{name}.{aggregate.name}" for aggregate in aggregates)
    values = {
        "topics": topics,
        "name": name,
        "aggregates": entries,
        "outbox_table": OUTBOX_TABLE,
        "version": __version__,
    }
    files = {
        Path("connectors") / f"{name}.yaml": _render("pipeline.yaml.j2", **values),
        Path("connectors/environments/local.yaml"): environment_file(database),
        Path("connectors/environments/production.example.yaml"): _packaged("environments/production.example.yaml"),
        **{Path("connectors") / file: _packaged(file) for file in ("pipeline.schema.json", "environment.schema.json")},
        Path("tests/test_states.py"): _render("test_states.py.j2", **values, variable=TEST_DSN),
        Path(".github/workflows/outbox.yml"): _render("workflow.yml.j2", **values),
        Path(".gitignore"): _render("gitignore.j2"),
    }
    for aggregate in aggregates:
        files |= aggregate_files(name, aggregate, with_triggers=with_triggers)
    return files


def aggregate_files(name: str, aggregate: AggregateTables, *, with_triggers: bool) -> dict[Path, str]:
    """Return the files of one aggregate: its schema, its view and, if requested, its triggers."""
    avro = json.dumps(schema(aggregate, name), indent=2, ensure_ascii=False)
    files = {
        Path("schemas") / f"{aggregate.name}.avsc": f"{avro}\n",
        Path("sql") / f"{aggregate.name}_state.sql": create_view(aggregate),
    }
    if with_triggers:
        values = triggers.template_values(aggregate, OUTBOX_TABLE)
        files[Path("sql") / f"{aggregate.name}_triggers.sql"] = _render("triggers.sql.j2", **values)
    return files


def pipeline_entry(aggregate: AggregateTables) -> str:
    """Return the aggregate's entry under `aggregates`, with indentation."""
    return _render(
        "aggregate.yaml.j2",
        name=aggregate.name,
        table=aggregate.root.table.full_name,
        key=_inline(aggregate.key[0] if len(aggregate.key) == 1 else list(aggregate.key)),
        query=_inline(backfill_query(aggregate)),
    ).rstrip()


def materialization_entry(aggregate: AggregateTables) -> str:
    """Return the aggregate's entry under `materializations`, with indentation."""
    return f"  - {{aggregate: {aggregate.name}, target: warehouse, table: {aggregate.name}}}"


def environment_file(database: Database | None) -> str:
    """Return the environment file `local.yaml`."""
    quoted = None if database is None else {key: _inline(value) for key, value in vars(database).items()}
    return _render("environment.yaml.j2", database=quoted)


def _inline(value: object) -> str:
    """Return a value as YAML in one line."""
    return yaml.safe_dump(value, default_flow_style=True, width=float("inf")).removesuffix("\n...\n").strip()


def _render(template: str, **values: object) -> str:
    return TEMPLATES.get_template(template).render(values)


def _packaged(file: str) -> str:
    """Return the text of a file in connectors/ of outbox-kit, in the installed package or in a checkout."""
    return (packaged_connectors() / file).read_text()
