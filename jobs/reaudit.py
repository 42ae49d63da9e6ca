"""Forwards to `jobs/run.py --from archive`; `--fleet FILE` is FILE there. The next release will not have it."""

import sys

from kraft_audit.commands.cli import run_job

if __name__ == "__main__":
    arguments = [text.removeprefix("--fleet=") for text in sys.argv[1:] if text != "--fleet"]
    sys.exit(run_job("run", ["--from", "archive", *arguments], old_name="reaudit.py"))
