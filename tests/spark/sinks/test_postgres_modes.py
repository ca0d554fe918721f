"""Each mode of PostgreSQL tables, compared batch by batch with a model in Python. The tests do not use Spark."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

import psycopg
import pytest
from tests.spark.kafka_log import sequence
from tests.spark.sql_batches import POISON, TOMBSTONE, UPSERT, Change, Table, fresh_schema

from outbox_spark.jobs.model import Mode, WriteCounts

MakeTable = Callable[[Mode], Table]


@pytest.fixture
def make_table(postgres: psycopg.conninfo.ConninfoDict) -> Iterator[MakeTable]:
    with fresh_schema(postgres, "modes") as connection:
        yield lambda mode: Table(connection, "modes", mode)


def upsert(key: str, commit: int, offset: int | None = None) -> Change:
    return Change(key, UPSERT, sequence(commit), commit if offset is None else offset, commit)


def delete(key: str, commit: int, offset: int | None = None) -> Change:
    return Change(key, TOMBSTONE, sequence(commit), commit if offset is None else offset)


def poison(key: str, commit: int) -> Change:
    return Change(key, POISON, sequence(commit), commit)


def random_log(rng: random.Random, *, sequences: bool = True) -> list[Change]:
    """Return changes, deletions and poison of a few keys. Some records are sent again at later offsets."""
    log: list[Change] = []
    while len(log) < 60:
        offset = len(log)
        if log and rng.random() < 0.3 and sequences:
            old = rng.choice(log)
            log.append(Change(old.key, old.kind, old.sequence, offset, old.n))
            continue
        kind = rng.choices([UPSERT, TOMBSTONE, POISON], [6, 2, 1])[0]
        number = sequence(rng.randrange(10**6)) if sequences else ""
        log.append(Change(f"k{rng.randrange(6)}", kind, number, offset, offset if kind == UPSERT else None))
    return log


def batches(log: Sequence[Change], rng: random.Random) -> Iterator[tuple[Sequence[Change], Sequence[Change]]]:
    """Divide the log into batches. Yield the records up to the end of each batch, and the records of the batch."""
    cuts = sorted(rng.sample(range(1, len(log)), 4))
    for start, end in zip([0, *cuts], [*cuts, len(log)], strict=True):
        yield log[:end], log[start:end]


def reduced(batch: Sequence[Change]) -> list[Change]:
    """Return, for each key, the newest readable record and newer unreadable records."""
    reduced_batch: list[Change] = []
    for key in {change.key for change in batch}:
        changes_of_key = [change for change in batch if change.key == key]
        readable = max((c for c in changes_of_key if c.kind != POISON), key=lambda c: c.version, default=None)
        reduced_batch += [readable] if readable else []
        reduced_batch += [
            c for c in changes_of_key if c.kind == POISON and (readable is None or c.version > readable.version)
        ]
    return reduced_batch


def newest(log: Sequence[Change]) -> dict[str, Change]:
    newest_changes: dict[str, Change] = {}
    for change in sorted((c for c in log if c.kind != POISON), key=lambda c: c.version):
        newest_changes[change.key] = change
    return newest_changes


def is_stale(row: Change, log: Sequence[Change]) -> bool:
    return any(c.kind == POISON and c.key == row.key and c.version > row.version for c in log)


@pytest.mark.parametrize("seed", range(8))
def test_hard_deletes_equal_the_oracle_after_every_batch(make_table: MakeTable, seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311
    table = make_table(Mode.HARD_DELETE)
    for read, batch in batches(random_log(rng, sequences=seed % 4 != 0), rng):
        table.apply(reduced(batch))
        expected = {k: (c.n, c.offset, is_stale(c, read)) for k, c in newest(read).items() if c.kind == UPSERT}
        assert table.state("n", "_offset", "_stale") == expected


@pytest.mark.parametrize("seed", range(8))
def test_soft_deletes_equal_the_model_after_every_batch(make_table: MakeTable, seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311
    table, visible = make_table(Mode.SOFT_DELETE), {}
    for read, batch in batches(random_log(rng, sequences=seed % 4 != 0), rng):
        table.apply(reduced(batch))
        for key, change in newest(read).items():
            if change.kind == UPSERT:
                visible[key] = change.n
        expected = {
            key: (visible[key], c.offset, is_stale(c, read), None if c.kind == UPSERT else c.timestamp)
            for key, c in newest(read).items()
            if key in visible
        }
        assert table.state("n", "_offset", "_stale", "_deleted_at") == expected
        assert {row["aggregate_id"] for row in table.rows("__tombstones")}.isdisjoint(expected)


@pytest.mark.parametrize("seed", range(12))
def test_history_equals_the_oracle_after_every_batch(make_table: MakeTable, seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311
    table = make_table(Mode.HISTORY)
    for read, batch in batches(random_log(rng, sequences=seed % 4 != 0), rng):
        table.apply(last_copies(batch))
        rows, ledger = table.rows(), table.rows("__tombstones")
        stored = {version_of(row): row["_timestamp"] for row in [*rows, *ledger]}
        versions = {(c.key, c.sequence or c.offset): c for c in read if c.kind != POISON}
        assert set(stored) == set(versions)
        assert len(stored) == len(rows) + len(ledger)
        for row in rows:
            key, version = version_of(row)
            later = sorted(v for k, v in stored if k == key and v > version)  # type: ignore[operator]
            assert row["n"] == versions[key, version].n
            assert row["_valid_from"] == row["_timestamp"]
            assert row["_valid_to"] == (stored[key, later[0]] if later else None)
            stored_as = Change(key, UPSERT, row["_sequence"], row["_offset"])
            assert row["_stale"] == (not later and is_stale(stored_as, read))


def last_copies(batch: Sequence[Change]) -> list[Change]:
    """Return the last copy of each version, to which the job reduces a batch in history mode."""
    return list({(c.key, c.sequence or c.offset): c for c in batch}.values())


def version_of(row: dict[str, object]) -> tuple[str, object]:
    return str(row["aggregate_id"]), row["_sequence"] or row["_offset"]


def test_soft_delete_counts(make_table: MakeTable) -> None:
    table = make_table(Mode.SOFT_DELETE)
    assert table.apply([upsert("a", 1), delete("never", 2)]) == WriteCounts(upserts=1, tombstones=1)
    assert table.apply([delete("a", 3), upsert("never", 1, 9)]) == WriteCounts(deletes=1)
    assert table.state("n", "_sequence", "_deleted_at") == {"a": (1, sequence(3), delete("a", 3).timestamp)}
    assert table.apply([upsert("a", 2, 10)]) == WriteCounts()
    assert table.apply([upsert("a", 4), upsert("never", 5)]) == WriteCounts(upserts=2)
    assert table.state("n", "_deleted_at") == {"a": (4, None), "never": (5, None)}
    assert table.rows("__tombstones") == []


def test_history_counts(make_table: MakeTable) -> None:
    table = make_table(Mode.HISTORY)
    assert table.apply([upsert("a", 1), upsert("a", 5), delete("b", 3)]) == WriteCounts(upserts=2, tombstones=1)
    # A deletion that is older than the current version ends an older version.
    assert table.apply([delete("a", 3), upsert("a", 1, 20)]) == WriteCounts(tombstones=1)
    assert table.apply([delete("a", 7)]) == WriteCounts(deletes=1, tombstones=1)
    assert table.apply([upsert("a", 6)]) == WriteCounts(upserts=1)
    assert table.apply([delete("a", 7, 21), upsert("a", 5, 22)]) == WriteCounts()
    ends = [(row["n"], row["_valid_to"]) for row in table.rows()]
    assert ends == [(1, delete("a", 3).timestamp), (5, upsert("a", 6).timestamp), (6, delete("a", 7).timestamp)]


def test_history_has_at_most_one_current_version(make_table: MakeTable) -> None:
    table = make_table(Mode.HISTORY)
    table.apply([upsert("a", 1)])
    with pytest.raises(psycopg.errors.UniqueViolation):
        table.connection.execute(
            "insert into modes.thing select aggregate_id, n, 'x', 0, 0, 9, _timestamp, false, _timestamp "
            "from modes.thing"
        )


@pytest.mark.parametrize("mode", list(Mode))
def test_empty_batch_creates_the_table(make_table: MakeTable, mode: Mode) -> None:
    table = make_table(mode)
    assert table.apply([]) == WriteCounts()
    assert table.apply([upsert("a", 1), poison("a", 2), poison("b", 3)]) == WriteCounts(upserts=1, quarantined=2)
    before = table.rows()
    assert table.apply([]) == WriteCounts()
    assert table.rows() == before


@pytest.mark.parametrize("mode", list(Mode))
def test_key_is_stale_until_a_newer_valid_record(make_table: MakeTable, mode: Mode) -> None:
    table = make_table(mode)
    table.apply([upsert("a", 1), poison("late", 5)])
    table.apply([poison("a", 4)])
    assert current(table) == {"a": (1, True)}
    table.apply([upsert("a", 3), upsert("late", 4)])
    assert current(table) == {"a": (3, True), "late": (4, True)}
    table.apply([upsert("a", 5), upsert("late", 6)])
    assert current(table) == {"a": (5, False), "late": (6, False)}
    table.apply([poison("a", 2)])
    assert current(table)["a"] == (5, False)


@pytest.mark.parametrize("mode", list(Mode))
def test_deletion_after_poison_clears_the_stale_flag(make_table: MakeTable, mode: Mode) -> None:
    table = make_table(mode)
    table.apply([upsert("a", 1), poison("a", 2)])
    assert current(table) == {"a": (1, True)}
    table.apply([delete("a", 3)])
    assert current(table) == {}
    assert not any(row["_stale"] for row in table.rows())
    table.apply([upsert("a", 4)])
    assert current(table) == {"a": (4, False)}


def test_poison_of_a_deleted_topic_flags_no_row(make_table: MakeTable) -> None:
    table = make_table(Mode.HARD_DELETE)
    table.apply([poison("a", 9)])
    table.connection.execute("update modes.thing__quarantine set topic_id = 'another'")
    table.apply([upsert("a", 1)])
    assert current(table) == {"a": (1, False)}


def current(table: Table) -> dict[str, tuple[int, bool]]:
    """Return the value and the stale flag of each key that is not deleted."""
    return {
        row["aggregate_id"]: (row["n"], row["_stale"])
        for row in table.rows()
        if row.get("_deleted_at") is None and row.get("_valid_to") is None
    }
