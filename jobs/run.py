"""`kraft-audit run` for spark-submit: plan, stage, commit, close, findings, risk; the options are the command's.

spark-submit --properties-file conf/spark/standalone.conf --py-files kraft_audit.zip jobs/run.py fleet.yaml
spark-submit … jobs/run.py fleet.yaml --only stage
spark-submit … jobs/run.py --from archive --lake LAKE
"""

import sys

from kraft_audit.commands.cli import run_job

if __name__ == "__main__":
    sys.exit(run_job("run", sys.argv[1:]))
