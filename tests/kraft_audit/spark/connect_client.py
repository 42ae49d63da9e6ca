"""As a program: asks a Spark Connect server for a table of log dirs, and prints its rows by record type as JSON.

In a process of its own, as one process is either a Connect client or has a JVM of its own.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

from kraft_audit.spark import register

spark = SparkSession.builder.remote("local[1]").config("spark.ui.enabled", "false").getOrCreate()
try:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    register(spark)
    records = spark.read.format("kraft").load(sys.argv[1])
    counted = {row["record_type"]: row["count"] for row in records.groupBy("record_type").count().collect()}
    pushed = records.where("record_type = 'PARTITION_RECORD' and offset >= 10").count()
    sys.stdout.write("\n" + json.dumps({"client": type(spark).__module__, "counted": counted, "pushed": pushed}))
finally:
    spark.stop()
