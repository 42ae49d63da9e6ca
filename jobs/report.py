"""`kraft-audit report` for spark-submit or plain Python: what a lake's findings say, as pages or files.

spark-submit --properties-file conf/spark/standalone.conf --py-files kraft_audit.zip jobs/report.py LAKE --out DIR
"""

import sys

from kraft_audit.commands.cli import run_job

if __name__ == "__main__":
    sys.exit(run_job("report", sys.argv[1:]))
