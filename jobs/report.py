"""`kraft-audit report` for spark-submit or plain Python: a lake's findings as pages, or as files for other programs.

Reads: the lake as its last closed plan left it; or log dirs, which it then judges itself.
Runs: queries and templates in the driver; it starts no Spark session.
Writes: a static site into `--out DIR`, over an earlier one; with `--output` one file or folder of CSV, Parquet,
OpenMetrics or OCSF events. Where nothing can be read, an earlier report stays as it was.

spark-submit --properties-file conf/spark/standalone.conf --py-files kraft_audit.zip jobs/report.py LAKE --out DIR
python jobs/report.py LAKE --output openmetrics --out kraft.prom
"""

import sys

from kraft_audit.commands.cli import run_command

if __name__ == "__main__":
    sys.exit(run_command(["report", *sys.argv[1:]]))
