"""`kraft-audit run` for spark-submit: a fleet's log dirs become Delta tables, then findings and risk.

Reads: the fleet file and the log dirs, archives and buckets that it names; with `--from archive` only the lake.
Runs: plan in the driver; stage as a Spark job over `spark.read.format("kraft")` (`SparkStager` in
kraft_audit/spark/run_fleet.py); commit and close in the driver (`committer: spark`: by Spark); findings and risk as
Spark SQL (`SparkGold` in kraft_audit/spark/gold_engine.py).
Writes: the lake, with its archive of the logs.

spark-submit --properties-file conf/spark/standalone.conf --py-files kraft_audit.zip jobs/run.py fleet.yaml
spark-submit … jobs/run.py fleet.yaml --tables-only
spark-submit … jobs/run.py --from archive --lake LAKE
"""

import sys

from kraft_audit.commands.cli import run_command

if __name__ == "__main__":
    sys.exit(run_command(["run", *sys.argv[1:]]))
