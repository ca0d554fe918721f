"""Convert JSON values to records of the reader schema, as strictly as the SMT's Avro encoder.

docs/smt-payloads.md defines which JSON is valid for which Avro type. Decimals and integers are never rounded. A JSON
number that cannot be converted exactly is invalid for these types.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_
from typing import Any

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from outbox_events.schemas.avro_schema import Node, Schema, kind_of, load
from outbox_spark.decoding import json_scalars
from outbox_spark.decoding.avro_values import default_of
from outbox_spark.decoding.json_scalars import Converter
from outbox_spark.decoding.json_text import has_kind, parse_json, payload_of, unwrap_string
from outbox_spark.decoding.quarantine_reasons import Reason
from outbox_spark.session.expressions import prevent_inlining


@dataclass(frozen=True)
class Conversion:
    """Conversion of a variant (including JSON null) to a value, and the condition under which it is invalid."""

    value: Converter
    is_invalid: Converter


def with_records(latest: DataFrame, reader_schema: str, *, with_schema: bool) -> DataFrame:
    """Add `record` (a struct of the reader schema's fields), `problem` (a Reason or NULL) and `deleted` to `latest`.

    JSON null is decoded as a tombstone, even inside an envelope.
    """
    schema = load(reader_schema)
    conversions = _field_conversions(schema, schema.root)
    document, state = F.col("document"), F.col("state")
    with_state = latest.withColumn("document", prevent_inlining(parse_json(F.col("value")))).withColumn(
        "state", prevent_inlining(unwrap_string(payload_of(document) if with_schema else document))
    )
    is_deleted = F.col("value").isNull() | F.coalesce(F.is_variant_null(state), F.lit(False))
    is_object = F.coalesce(has_kind(state, "OBJECT"), F.lit(False))
    problem = F.when(is_deleted, F.lit(None)).when(~is_object, Reason.UNDECODABLE)
    for name, conversion in conversions.items():
        problem = problem.when(conversion.is_invalid(state), F.lit(f"{Reason.INVALID}:{name}"))
    with_problem = with_state.withColumn("problem", prevent_inlining(problem)).withColumn("deleted", is_deleted)
    record = F.struct(*[conversion.value(state).alias(name) for name, conversion in conversions.items()])
    is_valid = F.col("problem").isNull() & ~F.col("deleted")
    return with_problem.withColumn("record", prevent_inlining(F.when(is_valid, record))).drop("document", "state")


def _field_conversions(schema: Schema, record: Mapping[str, Any]) -> dict[str, Conversion]:
    """Return a mapping from each field name of `record` to the field's conversion, whose input is the JSON object."""
    return {str(field["name"]): _field_conversion(schema, field) for field in record["fields"]}


def _field_conversion(schema: Schema, field: Mapping[str, Any]) -> Conversion:
    """Return the conversion of a field. If a member is missing and has no default, the object is invalid."""
    inner = _conversion(schema, field["type"])
    path = f"$.{field['name']}"
    default = default_of(schema, field) if "default" in field else None

    def value(container: Expression) -> Expression:
        member = F.try_variant_get(container, path, "variant")
        converted = F.when(member.isNotNull(), inner.value(member))
        return converted if default is None else converted.otherwise(default)

    def is_invalid(container: Expression) -> Expression:
        member = F.try_variant_get(container, path, "variant")
        return F.when(member.isNull(), F.lit(default is None)).otherwise(inner.is_invalid(member))

    return Conversion(value, is_invalid)


def _conversion(schema: Schema, node: Node) -> Conversion:
    branches = schema.branches(node)
    conversions = [_branch(schema, branch) for branch in branches if branch != "null"]
    kinds = {str(branch) for branch in branches if branch != "null"}
    if kinds in ({"int", "long"}, {"float", "double"}):  # Spark reads each of these unions as one type
        conversions = [_branch(schema, "long" if "long" in kinds else "double")]
    inner = conversions[0] if len(conversions) == 1 else _union(conversions)
    if "null" not in branches:
        return inner
    return Conversion(
        lambda json: F.when(~F.is_variant_null(json), inner.value(json)),
        lambda json: ~F.is_variant_null(json) & inner.is_invalid(json),
    )


def _union(branches: list[Conversion]) -> Conversion:
    """Return the conversion of a union to a struct, as Spark represents unions. The first matching branch is set."""

    def value(json: Expression) -> Expression:
        is_matched = F.lit(False)
        members = []
        for index, branch in enumerate(branches):
            is_accepted = ~branch.is_invalid(json)
            members.append(F.when(is_accepted & ~is_matched, branch.value(json)).alias(f"member{index}"))
            is_matched = is_matched | is_accepted
        return F.struct(*members)

    return Conversion(value, lambda json: reduce(and_, [branch.is_invalid(json) for branch in branches], F.lit(True)))


def _branch(schema: Schema, node: Node) -> Conversion:
    kind = kind_of(node)
    if kind == "record":
        return _record(schema, node)
    if kind == "array":
        return _array(_conversion(schema, node["items"]))
    if kind == "map":
        return _map(_conversion(schema, node["values"]))
    convert = json_scalars.converter(node)
    return Conversion(convert, lambda json: convert(json).isNull())


def _record(schema: Schema, node: Mapping[str, Any]) -> Conversion:
    conversions = _field_conversions(schema, node)
    return Conversion(
        lambda json: F.struct(*[conversion.value(json).alias(name) for name, conversion in conversions.items()]),
        lambda json: reduce(or_, [field.is_invalid(json) for field in conversions.values()], ~has_kind(json, "OBJECT")),
    )


def _array(item: Conversion) -> Conversion:
    def items(json: Expression) -> Expression:
        return F.try_variant_get(json, "$", "array<variant>")

    return Conversion(
        lambda json: F.transform(items(json), item.value),
        lambda json: items(json).isNull() | F.exists(items(json), item.is_invalid),
    )


def _map(entry: Conversion) -> Conversion:
    def entries(json: Expression) -> Expression:
        return F.try_variant_get(json, "$", "map<string,variant>")

    return Conversion(
        lambda json: F.transform_values(entries(json), lambda _, item: entry.value(item)),
        lambda json: entries(json).isNull() | F.exists(F.map_values(entries(json)), entry.is_invalid),
    )
