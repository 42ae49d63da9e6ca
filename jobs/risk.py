"""Forwards to `jobs/run.py --only findings` and `--only risk`. The next release will not have it."""

import sys

from kraft_audit.commands.cli import run_job

if __name__ == "__main__":
    codes = (run_job("run", [*sys.argv[1:], "--only", step], old_name="risk.py") for step in ("findings", "risk"))
    sys.exit(next((code for code in codes if code), 0))
