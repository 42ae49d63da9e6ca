"""`kraft-audit lake maintain` for spark-submit or plain Python: keep a lake small and quick to read.

Reads: the lake's tables, and the retention and layout in `--conf FILE` (conf/maintain.yaml is an example).
Runs: delete rows past their retention, join small files, VACUUM, table by table, in the driver; with
`--committer spark` as Spark SQL, with liquid clustering (`SparkLake` in kraft_audit/spark/spark_lake.py).
Writes: new versions of the lake's tables, and deletes files that no version names; with `--dry-run` nothing.
Exit code 3: a table failed. A plan that is open must be finished first, by `jobs/run.py FLEET --finish`.

spark-submit --properties-file conf/spark/standalone.conf --py-files kraft_audit.zip jobs/maintain.py LAKE --conf FILE
python jobs/maintain.py LAKE --dry-run
"""

import sys

from kraft_audit.commands.cli import run_command

if __name__ == "__main__":
    sys.exit(run_command(["lake", "maintain", *sys.argv[1:]]))
