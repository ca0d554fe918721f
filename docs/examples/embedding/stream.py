"""A streaming query: every change of a topic, in micro-batches, with its own checkpoint."""

import os

from pyspark.sql import DataFrame, SparkSession

import outbox_spark

spark = SparkSession.builder.getOrCreate()
(job,) = outbox_spark.read_jobs(os.environ["OUTBOX_JOB_FILE"], aggregates=["thing"])


def apply(changes: DataFrame, batch_id: int) -> None:
    """Handle the changes of one micro-batch; a batch can be repeated, with the same batch_id."""
    print(batch_id, changes.where("__outbox_deleted AND __outbox_reason IS NULL").count(), "deletions")
    changes.write.mode("append").json(os.environ["OUTBOX_STREAM_OUTPUT"])


query = (
    outbox_spark.read_changes(spark, job, starting_offsets="earliest")
    .writeStream.foreachBatch(apply)
    .option("checkpointLocation", os.environ["OUTBOX_STREAM_CHECKPOINT"])
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
