"""Records of the aggregate `thing`, `{"n": commit}`, and the log that most tests of tables read."""

from __future__ import annotations

from tests.spark.kafka_log import POISON, Log, Record, Schemas, framed, sequence

THING = {"type": "record", "name": "Thing", "fields": [{"name": "n", "type": "int"}]}
SCHEMAS = Schemas({1: THING}, newest=1)


class CrashError(Exception):
    """Simulates a crash of the driver."""


def crash(*_: object) -> None:
    raise CrashError


def put(log: Log, key: str, commit: int) -> Record:
    return log.append(key, framed(THING, 1, {"n": commit}), sequence(commit), {"n": commit})


def delete(log: Log, key: str, commit: int) -> Record:
    return log.append(key, None, sequence(commit))


def poison(log: Log, key: str, commit: int) -> Record:
    """Append a value that cannot be decoded."""
    return log.append(key, b"bad", sequence(commit), POISON)


def two_part_log() -> tuple[Log, dict[int, int]]:
    """Return a log, and the offsets of its second part, which contains a deletion, an update, an insert and poison."""
    log = Log("test.thing")
    put(log, "a", 1)
    put(log, "b", 2)
    first = log.end()
    delete(log, "a", 3)
    put(log, "b", 4)
    put(log, "c", 5)
    poison(log, "bad", 6)
    return log, first
