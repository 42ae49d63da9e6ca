"""Where a test kills a run: `KRAFT_AUDIT_FAILPOINT=after-stage` ends the process there as kill -9 would.

Points: after-plan, in-stage (ends the worker), before-manifest, after-stage, after-commit:TABLE,
after-close, after-findings:PLAN, after-risk. Nobody sets it in production.
"""

from __future__ import annotations

import os
import signal


def failpoint(name: str) -> None:
    if os.environ.get("KRAFT_AUDIT_FAILPOINT") == name:
        os.kill(os.getpid(), signal.SIGKILL)
