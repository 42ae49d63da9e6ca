"""Publish what a lake's findings say, for spark-submit or plain Python, as `kraft-audit report`.

spark-submit --properties-file conf/spark/standalone.conf --py-files kraft_audit.zip jobs/publish.py LAKE --out DIR
"""

from __future__ import annotations

import sys

from kraft_audit.cli import run_command

if __name__ == "__main__":
    sys.exit(run_command(["report", *sys.argv[1:]]))
