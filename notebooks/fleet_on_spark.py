# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # What the disks of a fleet hold, counted on Spark
# Spark's workers read the log dirs themselves: no lake, no run. Several paths and patterns are read together, and node dirs
# of one cluster are judged together wherever they lie.

# %% tags=["parameters"]
PATH = "samples/elr-*.tgz"  # captures of any number of clusters: a folder, an archive, an address or a pattern
OTHER_PATH = "samples/torn-write.tgz"  # more of them
MASTER = "local[2]"  # where tasks run: spark://HOST:7077 for a standalone cluster, whose workers open the same paths: absolute ones

# %%
import os
import sys

import altair as alt
from IPython.display import Markdown
from pyspark.sql import SparkSession, functions

from kraft_audit.spark.session import use_java
from kraft_audit.text.notebook_output import WORST_FIRST, show_offline

show_offline()
use_java()
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Spark looks the source up with it, and so do workers
settings = {
    "spark.sql.python.filterPushdown.enabled": "true",  # filters on cluster_id, node_id, offset, record_type reach the logs
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
}
spark = SparkSession.builder.master(MASTER).appName("fleet on Spark").config(map=settings).getOrCreate()


def logs(table):
    return spark.read.format("kraft").option("table", table).load([PATH, OTHER_PATH])


# %% [markdown]
# ## Records by type
# One large cluster's `records` and `batches` are read by several tasks.

# %%
by_type = logs("records").groupBy("cluster_id", "record_type").agg(functions.count("*").alias("records")).toPandas()
most = by_type.groupby("record_type")["records"].sum().nlargest(15).index
alt.Chart(by_type[by_type["record_type"].isin(most)]).mark_bar().encode(
    x="records:Q", y=alt.Y("record_type:N", sort="-x", title=None), color="cluster_id:N"
).properties(width=600)

# %%
Markdown(f"**{by_type['records'].sum():,} records** in {by_type['cluster_id'].nunique()} clusters.")

# %% [markdown]
# ## What each disk holds

# %%
disks = logs("batches").where("status = 'present'").groupBy("cluster_id", "node_id", "capture")
disks.agg(
    functions.count("*").alias("batches"),
    functions.sum(functions.when(functions.col("valid"), 0).otherwise(1)).alias("refused"),
    functions.max("leader_epoch").alias("last_epoch"),
    (
        functions.max(
            functions.when(functions.col("valid") & (functions.col("source") == "log"), functions.col("last_offset"))
        )
        + 1
    ).alias("end_offset"),
    functions.sum("size_bytes").alias("size_bytes"),
).orderBy("cluster_id", "capture", "node_id").toPandas()

# %% [markdown]
# ## Open findings
# Rules need a cluster's whole history: each cluster is judged by one task.

# %%
still = logs("findings").where("state = 'open'")
table = still.groupBy("cluster_id").pivot("severity", list(WORST_FIRST)).count().fillna(0)
table.orderBy(*(functions.desc(severity) for severity in WORST_FIRST)).toPandas()

# %%
still.groupBy("rule", "name", "severity").agg(functions.count("*").alias("findings")).orderBy(
    functions.desc("findings")
).toPandas()

# %%
spark.stop()
