"""The INSERT statement for rows that outbox-kit writes to the outbox table."""

from __future__ import annotations

import pytest
from psycopg import sql

from outbox_kit.pipeline import Columns, Source
from outbox_kit.postgres.ddl import insertion

NAMED = Columns(id="event_id", aggregate_type="Kind")


@pytest.mark.parametrize(
    ("columns", "additional", "names"),
    [
        (Columns(), (), '"id", "aggregate_type", "aggregate_id", "event_type", "payload"'),
        (NAMED, (), '"event_id", "Kind", "aggregate_id", "event_type", "payload"'),
        (NAMED, ("Tenant",), '"event_id", "Kind", "aggregate_id", "event_type", "payload", "Tenant"'),
    ],
    ids=["names of the contract", "named by the pipeline file", "with a partition field"],
)
def test_row_uses_column_names_of_the_pipeline_file(columns: Columns, additional: tuple[str, ...], names: str) -> None:
    source = Source(table="App.events", publication="p", slot="s", columns=columns)
    text = insertion(source, sql.SQL("values (%(id)s)"), *additional).as_string()
    assert text == f'insert into "App"."events" ({names}) values (%(id)s)'
