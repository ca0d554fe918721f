"""Compare two values of one column. NaN equals NaN, 0.0 equals -0.0, and the order of map entries is ignored."""

from __future__ import annotations

from pyspark.sql import Column as Expression
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, DataType, MapType, StructType


def differs(left: Expression, right: Expression, dtype: DataType) -> Expression:
    """Return whether two values of type `dtype` are different. NULL is equal only to NULL."""
    return ~F.equal_null(_comparable(left, dtype), _comparable(right, dtype))


def _comparable(value: Expression, dtype: DataType) -> Expression:
    """Return the value with each map replaced by a sorted array of entries, because Spark cannot compare maps."""
    if not _has_map(dtype):
        return value
    if isinstance(dtype, MapType):
        entries = F.map_entries(value)
        pairs = F.transform(
            entries, lambda entry: F.struct(entry["key"], _comparable(entry["value"], dtype.valueType).alias("value"))
        )
        return F.array_sort(pairs)
    if isinstance(dtype, ArrayType):
        return F.transform(value, lambda item: _comparable(item, dtype.elementType))
    if isinstance(dtype, StructType):
        fields = [_comparable(value[field.name], field.dataType).alias(field.name) for field in dtype.fields]
        return F.when(value.isNotNull(), F.struct(*fields))
    return value


def _has_map(dtype: DataType) -> bool:
    if isinstance(dtype, StructType):
        return any(_has_map(field.dataType) for field in dtype.fields)
    return isinstance(dtype, MapType) or (isinstance(dtype, ArrayType) and _has_map(dtype.elementType))
