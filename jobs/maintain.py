"""`kraft-audit maintain` for spark-submit or plain Python: join small files, retention, VACUUM.

spark-submit --properties-file conf/spark/standalone.conf --py-files kraft_audit.zip jobs/maintain.py LAKE --conf FILE
"""

import sys

from kraft_audit.commands.cli import run_job

if __name__ == "__main__":
    sys.exit(run_job("maintain", sys.argv[1:]))
