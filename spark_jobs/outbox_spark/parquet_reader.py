"""Reads the current rows of a Parquet target. Needs PySpark and nothing else: copy it where it is wanted.

    rows = read_current(spark, "s3a://lake/library/book")

The folder of a table holds `_current/`, one small JSON file for each snapshot, named by its number. The highest is
the current one; `rows` in it names the folder with the rows. What one call of `read_current` returned keeps its rows
while later runs write: a snapshot never changes, and stays for a day after the next one.
"""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

POINTERS = "_current"
_DIGITS = 12


def read_current(spark: SparkSession, path: str) -> DataFrame:
    """The rows of the table in the folder `path` as they are now. Raises FileNotFoundError when it has none yet."""
    pointer = newest_pointer(spark, path)
    if pointer is None:
        raise FileNotFoundError(f"{path} holds no snapshot: no run has ended there yet")
    schema = StructType.fromJson(pointer["schema"])
    return spark.read.schema(schema).parquet(f"{path.rstrip('/')}/{pointer['rows']}")


def newest_pointer(spark: SparkSession, path: str) -> dict[str, Any] | None:
    """What the pointer file with the highest number says; None when there is none."""
    jvm: Any = spark._jvm
    folder = jvm.org.apache.hadoop.fs.Path(f"{path.rstrip('/')}/{POINTERS}")
    files = folder.getFileSystem(spark._jsc.hadoopConfiguration())
    if not files.exists(folder):
        return None
    numbers = [n for status in files.listStatus(folder) if (n := number_of(status.getPath().getName())) is not None]
    if not numbers:
        return None
    stream = files.open(jvm.org.apache.hadoop.fs.Path(folder, pointer_name(max(numbers))))
    try:
        found: dict[str, Any] = json.loads(jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
    finally:
        stream.close()
    return found


def pointer_name(number: int) -> str:
    """Name of the pointer file of a snapshot. Of fixed width: the order of the names is that of the numbers."""
    return f"{number:0{_DIGITS}}"


def number_of(name: str) -> int | None:
    """The number in the name of a pointer file; None for any other file."""
    return int(name) if len(name) == _DIGITS and name.isdecimal() else None
