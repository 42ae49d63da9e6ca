"""Maintenance for spark-submit or plain Python: join small files, retention, VACUUM; as `kraft-audit maintain`.

spark-submit --properties-file conf/spark/standalone.conf --py-files kraft_audit.zip jobs/maintain.py LAKE --conf FILE
"""

from __future__ import annotations

import sys

from kraft_audit.cli import run_command

if __name__ == "__main__":
    sys.exit(run_command(["maintain", *sys.argv[1:]]))
