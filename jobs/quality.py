"""`kraft-audit lake quality` for spark-submit or plain Python: the gate between the tables and what is published.

Reads: the lake's tables and what earlier checks left in `_quality/`; with `--new` mostly the rows since the last check.
Runs: each table's contract as Great Expectations in DuckDB, then SQL across tables; it starts no Spark session.
Writes: `_quality/` in the lake: how far the checks passed and, unless `--docs DIR` says where, the page of results.
Exit code 1: a critical promise is broken, and what comes after this gate must not run.

spark-submit --properties-file conf/spark/standalone.conf --py-files kraft_audit.zip jobs/quality.py LAKE
python jobs/quality.py LAKE --new
"""

import sys

from kraft_audit.commands.cli import run_command

if __name__ == "__main__":
    sys.exit(run_command(["lake", "quality", *sys.argv[1:]]))
