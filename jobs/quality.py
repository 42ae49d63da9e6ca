"""`kraft-audit quality` for spark-submit or plain Python: exit code 1 stops what comes after this gate.

spark-submit --properties-file conf/spark/standalone.conf --py-files kraft_audit.zip jobs/quality.py LAKE
"""

import sys

from kraft_audit.commands.cli import run_job

if __name__ == "__main__":
    sys.exit(run_job("quality", sys.argv[1:]))
