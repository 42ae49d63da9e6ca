"""The quality gate for spark-submit or plain Python, as `kraft-audit quality`: exit code 1 stops what comes after.

spark-submit --properties-file conf/spark/standalone.conf --py-files kraft_audit.zip jobs/quality.py LAKE
"""

from __future__ import annotations

import sys

from kraft_audit.cli import run_command

if __name__ == "__main__":
    sys.exit(run_command(["quality", *sys.argv[1:]]))
