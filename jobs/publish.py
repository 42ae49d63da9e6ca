"""The name that jobs/report.py had before; the next release will not have it."""

import sys

from kraft_audit.commands.cli import run_job

if __name__ == "__main__":
    sys.exit(run_job("report", sys.argv[1:], old_name="publish.py"))
