"""The name that jobs/run.py had before; the next release will not have it."""

import sys

from kraft_audit.commands.cli import run_job

if __name__ == "__main__":
    sys.exit(run_job("run", sys.argv[1:], old_name="analyze.py"))
