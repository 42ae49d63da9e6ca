"""The exit codes of commands, jobs and runs, and what each says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

EXIT_FINE: Final = 0
EXIT_FINDINGS: Final = 1
EXIT_USAGE: Final = 2
EXIT_UNREADABLE: Final = 3
EXIT_UNDECIDED: Final = 4
EXIT_BUG: Final = 70  # EX_SOFTWARE of sysexits.h
EXIT_INTERRUPTED: Final = 130  # as a shell reports SIGINT
EXIT_PIPE_CLOSED: Final = 141  # as a shell reports SIGPIPE
EXIT_CODES: Final[Mapping[int, str]] = {
    EXIT_FINE: "fine",
    EXIT_FINDINGS: (
        "findings at or above `--fail-on`; `check`: the quorum is stalled, without a leader, lost or undecided; "
        "`evidence`: a pack is not as its manifest says, or has other committed batches; `quality`: a promise is "
        "broken; `may-i`: no; `upgrade-check`: blocked"
    ),
    EXIT_USAGE: (
        "usage: arguments or settings that cannot be, a folder to write to that is not empty, a name that is not there "
        "(`--capture`, `--node`, `--file`, `--cluster`, `--table`, `--rule`, `--type`)"
    ),
    EXIT_UNREADABLE: (
        "a file or folder that cannot be read, whatever it is for (PATH, a lake, `--settings`, `--waivers`, "
        "FLEET.yaml, `--spark-conf`, `--verify`); output that cannot be written"
    ),
    EXIT_UNDECIDED: "`may-i`, `upgrade-check`: undecided; the answer names what would decide it",
    EXIT_BUG: "a fault of kraft-audit itself",
    EXIT_INTERRUPTED: "interrupted",
    EXIT_PIPE_CLOSED: "the reader of the output left",
}
"""Every exit code of every command and job, and when: the documentation's table is made from this."""
