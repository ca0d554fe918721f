"""SQL statements for `backfill` in a pipeline file. tests/integration/operations/test_backfill.py runs them."""

from __future__ import annotations

import pytest

from outbox_kit.backfill.newest_states import EMPTY_SQL, AggregateStates
from outbox_kit.pipeline import Backfill, Columns, Source


def states(query: str, *, partition_field: str | None = None, key_type: str = "uuid") -> AggregateStates:
    columns = Columns(id="event", aggregate_id="key", payload="Body")
    source = Source(table="Shop.outbox", publication="p", slot="s", columns=columns)
    backfill = Backfill.model_validate({"table": "shop.item", "key": "Id", "query": query})
    types = {"Id": key_type}
    return AggregateStates("item", source, backfill, types, ["Id"], partition_field, deletes_rows=False)


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("select 1", "(\nselect 1\n) q"),
        ("select 1 ;\n", "(\nselect 1 \n) q"),
        ("select 1 -- end", "(\nselect 1 -- end\n) q"),
        ("select 1 where a like 'x%'", "(\nselect 1 where a like 'x%%'\n) q"),
        ("select 1 where id = any(:keys)", "(\nselect 1 where id = any(%(keys)s::text[]::uuid[])\n) q"),
        ("select a::keys, ':keyset'", "(\nselect a::keys, ':keyset'\n) q"),
        ("select '{braces}'", "(\nselect '{braces}'\n) q"),
    ],
)
def test_inserts_the_query_unchanged_except_its_keys(query: str, text: str) -> None:
    assert states(query)._subquery().as_string() == text


def test_accepts_key_types_with_brackets() -> None:
    actual = states("select 1 where id = any(:keys)", key_type="character varying(20)")._subquery().as_string()
    assert "::text[]::character varying(20)[]" in actual


def test_inserts_rows_with_the_column_names_of_the_pipeline() -> None:
    class Recorder:
        """Connection that records statements and returns no rows."""

        def __init__(self) -> None:
            self.statements: list[str] = []

        def execute(self, statement: object, _: object) -> Recorder:
            self.statements.append(statement.as_string())  # type: ignore[attr-defined]
            return self

        def fetchall(self) -> list[object]:
            return []

    recorder = Recorder()
    actual = states("select 1", partition_field="Tenant")
    actual._insert(recorder, actual._state_rows(EMPTY_SQL), {})  # type: ignore[arg-type]
    actual._insert(recorder, actual._tombstone_rows(), {})  # type: ignore[arg-type]
    inserted, tombstones = recorder.statements
    names = '"Shop"."outbox" ("event", "aggregate_type", "key", "event_type", "Body", "Tenant")'
    assert inserted.startswith(f"insert into {names} select gen_random_uuid(), ")
    assert 'q.payload::jsonb, q."Tenant" from' in inserted
    assert " ".join(tombstones.split()).startswith(f"insert into {names} select gen_random_uuid(), ")
    assert 'select "Tenant"::text from "Shop"."outbox" where "aggregate_type" = %(type)s' in tombstones
    assert '"key" = k and "Tenant"::text <> \'\' limit 1), v) as field' in tombstones
