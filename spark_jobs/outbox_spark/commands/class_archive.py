"""Create an archive of the classes that Spark loads, so that later processes of this machine start faster.

    python -m outbox_spark.commands.class_archive

Java maps the archive into memory instead of reading and verifying thousands of classes in jars. It ignores an archive
of another version of Java or other jars, so the archive must be created again after an update.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.avro.functions import from_avro, to_avro

from outbox_events.errors import ConfigurationError
from outbox_spark.commands.exit_codes import Exit, print_result, run_command
from outbox_spark.session.requirements import ALL_CLASSES
from outbox_spark.session.spark_session import SILENT_ARCHIVE, archive_file, start_session

EXIT_SECONDS = 300
_HINT = "check whether this user may write to the folder"
OTHER_CLASSES = ("org.apache.kafka.clients.consumer.KafkaConsumer", "io.outboxkit.spark.NewestTable")


def main() -> int:
    """Run the command, which prints the path of the archive. Return its exit code (an Exit)."""
    return run_command(create, debug=False)


def create() -> int:
    """Create the archive next to the folder of the jars. Raises ConfigurationError if it cannot be written."""
    path = archive_file()
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigurationError(f"cannot replace {path}: {error.strerror}", _HINT) from None
    options = f'"-XX:ArchiveClassesAtExit={path}" {SILENT_ARCHIVE}'
    os.environ["SPARK_SUBMIT_OPTS"] = f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} {options}"
    spark = start_session("outbox-class-archive", few_records=True)
    with tempfile.TemporaryDirectory(prefix="outbox-class-archive-") as folder:
        load_classes(spark, Path(folder))
    stop_java(spark)
    if not path.exists():
        raise ConfigurationError(f"Java has not written {path}", _HINT)
    print_result(str(path))
    return Exit.DONE


def load_classes(spark: SparkSession, folder: Path) -> None:
    """Run the kinds of queries of a materialization, which load nearly all of its classes."""
    jvm: Any = spark.sparkContext._jvm
    for name in (*ALL_CLASSES, *OTHER_CLASSES):
        jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)
    spark.conf.set("spark.sql.catalog.archive", "org.apache.iceberg.spark.SparkCatalog")
    spark.conf.set("spark.sql.catalog.archive.type", "hadoop")
    spark.conf.set("spark.sql.catalog.archive.warehouse", str(folder / "iceberg"))
    rows = _rows(spark).persist()
    rows.count()
    rows.write.format("delta").save(str(folder / "delta"))
    rows.writeTo("archive.db.t").using("iceberg").tableProperty("format-version", "3").create()
    rows.createOrReplaceTempView("archive_source")
    for table in (f"delta.`{folder / 'delta'}`", "archive.db.t"):
        spark.sql(
            f"MERGE INTO {table} t USING archive_source s ON t.key = s.key "
            "WHEN MATCHED AND s.n > 5 THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        ).collect()


def _rows(spark: SparkSession) -> DataFrame:
    schema = '{"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}]}'
    records = spark.range(100).select(
        F.md5(F.col("id").cast("string")).alias("key"), to_avro(F.struct("id"), schema).alias("value"), "id"
    )
    newest = records.groupBy(F.xxhash64("key").alias("hash"), "key").agg(F.max(F.struct("id", "value")).alias("newest"))
    return newest.select("key", from_avro("newest.value", schema)["id"].alias("n"), F.current_timestamp().alias("at"))


def stop_java(spark: SparkSession) -> None:
    """Stop Spark, and wait until its JVM has written the archive."""
    gateway: Any = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(EXIT_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
