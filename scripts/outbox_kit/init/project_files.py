"""Render the files of a project: pipeline and environment file, schemas, SQL, CI and a test."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined

from outbox_events.errors import ConfigurationError
from outbox_kit import __version__
from outbox_kit.init import triggers
from outbox_kit.init.aggregates import AggregateTables
from outbox_kit.init.fields import schema
from outbox_kit.init.source_database import SourceAddress
from outbox_kit.init.state_view import backfill_query, create_view, view_name
from outbox_kit.pipeline import Source
from outbox_kit.pipeline.render import packaged_connectors
from outbox_kit.postgres import ddl

TEST_DSN = "STATES_DSN"
"""Environment variable with the DSN for the generated test."""
TEMPLATES = Environment(
    loader=PackageLoader("outbox_kit.init"),
    undefined=StrictUndefined,
    keep_trailing_newline=True,
    autoescape=False,  # noqa: S701 - no HTML
)
PROJECT_NAME = re.compile(r"[a-z][a-z0-9_]{0,50}")
"""Name of a project, which is also part of names of a slot, a publication, topics and an Avro namespace."""


def project_name(text: str) -> str:
    """Return the name of a project for a database name: in lower case, with `_` in place of other characters."""
    name = re.sub(r"[^a-z0-9_]", "_", text.lower())[:50]
    return name if PROJECT_NAME.fullmatch(name) else f"p_{name}"[:50]


def check_name(name: str) -> str:
    """Return the name. Raises ConfigurationError if it is not valid in all places where a project's name is used."""
    if PROJECT_NAME.fullmatch(name) is None:
        hint = "use lower-case letters, digits and underscores, as in --name shop"
        raise ConfigurationError(f"--name {name!r} is not valid", hint)
    return name


def new_files(
    name: str, aggregates: Sequence[AggregateTables], address: SourceAddress | None, *, with_triggers: bool
) -> dict[Path, str]:
    """Return the text of every file of a new project by its path. `address` is None for the embedded stack."""
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
        "quoted_name": _inline(name),
        "aggregates": entries,
        "version": __version__,
    }
    files = {
        Path("connectors") / f"{name}.yaml": _render("pipeline.yaml.j2", **values),
        Path("connectors/environments/local.yaml"): environment_file(address),
        Path("connectors/environments/production.example.yaml"): _packaged("environments/production.example.yaml"),
        **{Path("connectors") / file: _packaged(file) for file in ("pipeline.schema.json", "environment.schema.json")},
        Path("tests/test_states.py"): _render("test_states.py.j2", **values, variable=TEST_DSN),
        Path(".github/workflows/outbox.yml"): _render("workflow.yml.j2", **values),
        Path(".gitignore"): _render("gitignore.j2"),
    }
    source = Source(publication=f"{name}_outbox", slot=f"{name}_outbox") if with_triggers else None
    for aggregate in aggregates:
        files |= aggregate_files(name, aggregate, source)
    return files


def aggregate_files(name: str, aggregate: AggregateTables, source: Source | None) -> dict[Path, str]:
    """Return the files of one aggregate of the project `name`: its schema, its view and, if `source` is set, triggers.

    Raises ConfigurationError if the triggers would not send all changes.
    """
    avro = json.dumps(schema(aggregate, name), indent=2, ensure_ascii=False)
    files = {
        Path("schemas") / f"{aggregate.name}.avsc": f"{avro}\n",
        view_file(aggregate): create_view(aggregate),
    }
    if source is not None:
        triggers.check_triggers(aggregate, source)
        values = triggers.template_values(aggregate, source)
        files[trigger_file(aggregate)] = _render("triggers.sql.j2", **values)
    return files


def view_file(aggregate: AggregateTables) -> Path:
    """Return the path of the file with the aggregate's view."""
    return Path("sql") / f"{aggregate.name}_state.sql"


def trigger_file(aggregate: AggregateTables) -> Path:
    """Return the path of the file with the aggregate's triggers."""
    return Path("sql") / f"{aggregate.name}_triggers.sql"


def pipeline_entry(aggregate: AggregateTables) -> str:
    """Return the aggregate's entry under `aggregates`, with indentation."""
    return _render(
        "aggregate.yaml.j2",
        name=_inline(aggregate.name),
        file=aggregate.name,
        table=aggregate.root.table.full_name,
        key=_inline(aggregate.key[0] if len(aggregate.key) == 1 else list(aggregate.key)),
        query=_inline(backfill_query(aggregate)),
    ).rstrip()


def materialization_entry(aggregate: AggregateTables) -> str:
    """Return the aggregate's entry under `materializations`, with indentation."""
    name = _inline(aggregate.name)
    return f"  - {{aggregate: {name}, target: warehouse, table: {name}}}"


def environment_file(address: SourceAddress | None) -> str:
    """Return the environment file `local.yaml`."""
    values = None
    if address is not None:
        values = {"host": address.host, "port": address.port, "database": address.database, **address.tls}
        values = {key: _inline(value) for key, value in values.items()}
    return _render("environment.yaml.j2", address=values, user=None if address is None else _inline(address.user))


def _inline(value: object) -> str:
    """Return a value as YAML in one line."""
    return yaml.safe_dump(value, default_flow_style=True, width=float("inf")).removesuffix("\n...\n").strip()


def _render(template: str, **values: object) -> str:
    return TEMPLATES.get_template(template).render(values)


def _packaged(file: str) -> str:
    """Return the text of a file in connectors/ of outbox-kit, in the installed package or in a checkout."""
    return (packaged_connectors() / file).read_text(encoding="utf-8")
