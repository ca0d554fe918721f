"""Spark's own from_avro on a topic of outbox-kit: every record, decoded with the latest schema only."""

import json
import os
from urllib.request import urlopen

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.avro.functions import from_avro

spark = SparkSession.builder.getOrCreate()
topic = os.environ["OUTBOX_TOPIC"]
with urlopen(f"{os.environ['OUTBOX_REGISTRY']}/subjects/{topic}-value/versions/latest") as response:  # noqa: S310
    schema = json.load(response)["schema"]
records = (
    spark.read.format("kafka")
    .option("kafka.bootstrap.servers", os.environ["OUTBOX_BOOTSTRAP_SERVERS"])
    .option("subscribe", topic)
    .load()
)
# The body follows a zero byte and four bytes of the schema id. PERMISSIVE: NULL if the schema does not fit.
body = F.expr("substring(value, 6)")
decoded = records.where("value IS NOT NULL").select(
    F.col("key").cast("string").alias("aggregate_id"),
    from_avro(body, schema, {"mode": "PERMISSIVE"}).alias("record"),
)
rows = decoded.select("aggregate_id", "record.*").collect()
