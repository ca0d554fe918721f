"""A streaming query: every change of a topic, in micro-batches, with its own checkpoint."""

import os

from pyspark.sql import DataFrame, SparkSession

import outbox_spark

spark = SparkSession.builder.getOrCreate()
(job,) = outbox_spark.read_jobs(os.environ["OUTBOX_JOB_FILE"], aggregates=["thing"])


def apply(changes: DataFrame, batch_id: int) -> None:
    """Write the changes of one micro-batch; a repeated batch has the same batch_id and replaces its files."""
    print(batch_id, changes.where("__outbox_deleted AND __outbox_reason IS NULL").count(), "deletions")
    changes.write.mode("overwrite").json(f"{os.environ['OUTBOX_STREAM_OUTPUT']}/batch_id={batch_id}")


query = (
    outbox_spark.read_changes(spark, job, starting_offsets="earliest")
    .writeStream.foreachBatch(apply)
    .option("checkpointLocation", os.environ["OUTBOX_STREAM_CHECKPOINT"])
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
