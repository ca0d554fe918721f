"""A notebook: materialize a table between other work in the same Spark session, and compare it with the topic."""

import os

from pyspark.sql import SparkSession

import outbox_spark

spark = SparkSession.builder.getOrCreate()

# Other work of the notebook. Its settings, views and jobs are not affected by the calls below.
spark.conf.set("spark.sql.session.timeZone", "America/New_York")
spark.range(10).createOrReplaceTempView("numbers")

jobs = outbox_spark.read_jobs(os.environ["OUTBOX_JOB_FILE"])
for job in jobs:
    outcome = outbox_spark.materialize(spark, job, report=print)
    print(outcome.table, outcome.status, outcome.upserts, "upserts,", outcome.deletes, "deletes")

# The same states, read from the topic without a table.
state = outbox_spark.read_state(spark, jobs[0]).persist()
state.createOrReplaceTempView("state")
# The fields of the topic can have any name, so each column is qualified with its view.
query = "SELECT s.aggregate_id, s.n FROM state s JOIN numbers ON s.n = numbers.id WHERE s.__outbox_reason IS NULL"
readable = spark.sql(query).collect()
unreadable = state.where("__outbox_reason IS NOT NULL").select("aggregate_id", "__outbox_reason").collect()
state.unpersist()
