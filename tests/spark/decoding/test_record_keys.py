"""Framed keys: the text of an Avro string with a schema id is the aggregate id."""

from __future__ import annotations

import io
import struct

import fastavro
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from tests.spark.kafka_log import Log, Schemas, framed
from tests.spark.table_under_test import Target

from outbox_spark.decoding.record_keys import key_text
from outbox_spark.jobs.model import Ordering, RecordFormat

THING = {"type": "record", "name": "Thing", "fields": [{"name": "n", "type": "int"}]}
SCHEMAS = Schemas({1: THING}, newest=1)


def framed_key(text: str, schema_id: int = 7) -> bytes:
    body = io.BytesIO()
    fastavro.schemaless_writer(body, "string", text)
    return b"\x00" + struct.pack(">I", schema_id) + body.getvalue()


@pytest.fixture(scope="module")
def unframed(spark: SparkSession) -> dict[bytes | None, bytes | None]:
    """Return the result of each key below, from one query."""
    texts = ["", "a", "é" * 10, "x" * 63, "x" * 64, "x" * 127, "x" * 128, "x" * 8191, "x" * 8192, "x" * 20_000]
    keys: list[bytes | None] = [framed_key(text, 2**31 - 1) for text in texts]
    keys += [text.encode() for text in texts]
    keys += [None, *NOT_FRAMED]
    no_header = F.lit(None).cast("binary")
    frame = spark.createDataFrame([(key,) for key in keys], "key binary")
    frame = frame.select("key", key_text(F.col("key"), no_header, RecordFormat.TEXT))
    return {bytes_of(before): bytes_of(after) for before, after in frame.collect()}


def bytes_of(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)


NOT_FRAMED = [
    b"\x00",
    b"\x00\x00\x00\x00\x07",
    framed_key("abc")[:-1],
    framed_key("abc") + b"x",
    b"\x01" + framed_key("abc")[1:],
    b"\x00\x00\x00\x00\x07\x05ab",  # a negative length
    b"\x00\x00\x00\x00\x07\x86\x00abc",  # a length that is encoded in more bytes than necessary
    struct.pack(">q", 1),
]


@pytest.mark.parametrize("size", [0, 1, 63, 64, 127, 128, 8191, 8192, 20_000])
def test_removes_the_frame_and_keeps_the_text(unframed: dict[bytes, bytes], size: int) -> None:
    text = "a" if size == 1 else "x" * size
    assert unframed[framed_key(text, 2**31 - 1)] == text.encode()
    assert unframed[text.encode()] == text.encode()


def test_decodes_multi_byte_text(unframed: dict[bytes, bytes]) -> None:
    assert unframed[framed_key("é" * 10, 2**31 - 1)] == ("é" * 10).encode()


@pytest.mark.parametrize("key", [*NOT_FRAMED, None], ids=repr)
def test_keeps_keys_without_a_frame(unframed: dict[bytes | None, bytes | None], key: bytes | None) -> None:
    assert unframed[key] == key


def test_orders_chain_records_by_offset_for_any_schema_id(target: Target) -> None:
    log = Log("test.thing", partitions=1)
    for key, schema_id, n in [("a", 7, 1), ("b", 7, 2), ("a", 9, 3)]:
        log.append(framed_key(key, schema_id), framed(THING, 1, {"n": n}), None, partition=0)
    first = target.run(log, SCHEMAS)
    assert (first.keys, first.upserts) == (2, 2)
    assert target.state("n") == {"a": {"n": 3}, "b": {"n": 2}}
    log.append(framed_key("b", 9), None, None, partition=0)
    log.append(framed_key("a", 7), framed(THING, 1, {"n": 4}), None, partition=0)
    second = target.run(log, SCHEMAS)
    assert (second.upserts, second.deletes, second.quarantined) == (1, 1, 0)
    assert target.state("n") == {"a": {"n": 4}}
    assert target.committed().ordering is Ordering.OFFSET  # type: ignore[union-attr]


def test_quarantines_unreadable_avro_keys_with_all_bytes_and_their_partition(target: Target) -> None:
    frame, text = b"\x00" + struct.pack(">I", 7), b"\x06a\xffb"
    log, value = Log("test.thing"), framed(THING, 1, {"n": 1})
    log.append(frame + text, value, None, partition=0)
    log.append(text, value, None, partition=1, headers={"__key_schema_id": frame})
    log.append(framed_key("readable"), value, None, partition=1)
    target.run(log, SCHEMAS)
    assert set(target.state()) == {"readable"}
    rows = [(bytes(row["key"]), row["reason"], row["_partition"]) for row in target.rows("__quarantine")]
    assert sorted(rows) == [(frame + text, "key-not-utf8", 0), (text, "key-not-utf8", 1)]
