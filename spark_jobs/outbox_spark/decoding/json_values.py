"""From JSON to records of the reader's schema, as strictly as the transform encodes them.

Which JSON is which Avro type is the same in both: see docs/smt.md. Nothing is rounded, cut or guessed; numbers that
would have passed through a double on their way into a decimal or a whole number are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from outbox_common.avro_schema import Node, Schema, kind_of, load
from outbox_spark.decoding import json_scalars
from outbox_spark.decoding.avro_values import default_of
from outbox_spark.decoding.json_text import kind_is, parsed, payload_of, state_of
from outbox_spark.decoding.quarantine_reasons import Reason
from outbox_spark.session.no_inline import once

Convert = Callable[[Expression], Expression]


@dataclass(frozen=True)
class Reading:
    """How a variant that is there (JSON null included) becomes a value, and when it is none."""

    value: Convert
    bad: Convert


def with_records(latest: DataFrame, reader: str, *, with_schema: bool) -> DataFrame:
    """`latest` with `record` (a struct of the reader's fields), `problem` (a Reason, NULL: none) and `deleted`.

    JSON null is a tombstone, also in an envelope: it says that the aggregate has no state.
    """
    schema = load(reader)
    fields = _fields(schema, schema.root)
    document, state = F.col("document"), F.col("state")
    states = latest.withColumn("document", once(parsed(F.col("value")))).withColumn(
        "state", once(state_of(payload_of(document) if with_schema else document))
    )
    deleted = F.col("value").isNull() | F.coalesce(F.is_variant_null(state), F.lit(False))
    problem = F.when(deleted, F.lit(None)).when(~F.coalesce(kind_is(state, "OBJECT"), F.lit(False)), Reason.UNDECODABLE)
    for name, reading in fields.items():
        problem = problem.when(reading.bad(state), F.lit(f"{Reason.INVALID}:{name}"))
    judged = states.withColumn("problem", once(problem)).withColumn("deleted", deleted)
    record = F.struct(*[reading.value(state).alias(name) for name, reading in fields.items()])
    good = F.col("problem").isNull() & ~F.col("deleted")
    return judged.withColumn("record", once(F.when(good, record))).drop("document", "state")


def _fields(schema: Schema, record: Mapping[str, Any]) -> dict[str, Reading]:
    """By name: how a field is read out of the object that it is a member of."""
    return {str(field["name"]): _member(schema, field) for field in record["fields"]}


def _member(schema: Schema, field: Mapping[str, Any]) -> Reading:
    """A member that is missing has the field's default; without one the object is bad."""
    inner = _reading(schema, field["type"])
    path = f"$.{field['name']}"
    default = default_of(schema, field) if "default" in field else None

    def value(container: Expression) -> Expression:
        member = F.try_variant_get(container, path, "variant")
        found = F.when(member.isNotNull(), inner.value(member))
        return found if default is None else found.otherwise(default)

    def bad(container: Expression) -> Expression:
        member = F.try_variant_get(container, path, "variant")
        return F.when(member.isNull(), F.lit(default is None)).otherwise(inner.bad(member))

    return Reading(value, bad)


def _reading(schema: Schema, node: Node) -> Reading:
    branches = schema.branches(node)
    others = [_branch(schema, branch) for branch in branches if branch != "null"]
    kinds = {str(branch) for branch in branches if branch != "null"}
    if kinds in ({"int", "long"}, {"float", "double"}):  # what Spark makes one type of
        others = [_branch(schema, "long" if "long" in kinds else "double")]
    inner = others[0] if len(others) == 1 else _union(others)
    if "null" not in branches:
        return inner
    return Reading(
        lambda found: F.when(~F.is_variant_null(found), inner.value(found)),
        lambda found: ~F.is_variant_null(found) & inner.bad(found),
    )


def _union(branches: list[Reading]) -> Reading:
    """The first branch that takes the value, in Spark's form of a union: a struct with a member for each."""

    def value(found: Expression) -> Expression:
        taken = F.lit(False)
        members = []
        for index, branch in enumerate(branches):
            takes = ~branch.bad(found) & ~taken
            members.append(F.when(takes, branch.value(found)).alias(f"member{index}"))
            taken = taken | ~branch.bad(found)
        return F.struct(*members)

    def bad(found: Expression) -> Expression:
        result = F.lit(True)
        for branch in branches:
            result = result & branch.bad(found)
        return result

    return Reading(value, bad)


def _branch(schema: Schema, node: Node) -> Reading:
    kind = kind_of(node)
    if kind == "record":
        return _record(schema, node)
    if kind == "array":
        return _array(_reading(schema, node["items"]))
    if kind == "map":
        return _map(_reading(schema, node["values"]))
    convert = json_scalars.converter(node)
    # A scalar is bad where nothing comes of it; JSON null is no scalar.
    return Reading(convert, lambda found: convert(found).isNull())


def _record(schema: Schema, node: Mapping[str, Any]) -> Reading:
    fields = _fields(schema, node)

    def bad(found: Expression) -> Expression:
        parts = [reading.bad(found) for reading in fields.values()]
        return reduce(or_, parts, ~kind_is(found, "OBJECT"))

    return Reading(lambda found: F.struct(*[r.value(found).alias(name) for name, r in fields.items()]), bad)


def _array(item: Reading) -> Reading:
    def items(found: Expression) -> Expression:
        return F.try_variant_get(found, "$", "array<variant>")

    return Reading(
        lambda found: F.transform(items(found), item.value),
        lambda found: items(found).isNull() | F.exists(items(found), item.bad),
    )


def _map(entry: Reading) -> Reading:
    def entries(found: Expression) -> Expression:
        return F.try_variant_get(found, "$", "map<string,variant>")

    return Reading(
        lambda found: F.transform_values(entries(found), lambda _, item: entry.value(item)),
        lambda found: entries(found).isNull() | F.exists(F.map_values(entries(found)), entry.bad),
    )
