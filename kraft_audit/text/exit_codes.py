"""The exit codes of commands, jobs and runs, and what each means."""

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
        "`check`: an open finding is at or above `--fail-on`, or the quorum is stalled, leaderless, lost or undecided; "
        "`evidence`: a pack does not match its manifest, or committed batches differ or are lost; `lake quality`: a "
        "critical check failed; `may-i`: no; `upgrade-check`: blocked; `rescue --plan`, `rescue`: refused; `doctor`: a "
        "check failed; `simulate`: an invariant broke"
    ),
    EXIT_USAGE: (
        "wrong usage: invalid arguments or settings, a target folder that is not empty, a missing package, or a name "
        "that does not exist (`--capture`, `--node`, `--file`, `--cluster`, `--table`, `--rule`, `--type`)"
    ),
    EXIT_UNREADABLE: (
        "a file or folder cannot be read (PATH, a lake, `--settings`, `--waivers`, FLEET.yaml, `--spark-conf`, "
        "`--verify`), output cannot be written, or a part of the work failed (`run`, `notify`, `lake maintain`)"
    ),
    EXIT_UNDECIDED: (
        "`may-i`, `upgrade-check`, `rescue --plan`, `rescue`: undecided; the answer says what is missing; `check`: "
        "the quorum is not judged, because no majority of the voters was captured; `salvage`: a disk that may hold "
        "lost records was not captured, or bytes of them are damaged; `evidence --before`: committed batches of the "
        "earlier pack could not be compared"
    ),
    EXIT_BUG: "a bug in kraft-audit",
    EXIT_INTERRUPTED: "interrupted",
    EXIT_PIPE_CLOSED: "the reader closed the pipe",
}
"""Every exit code of every command and job, and when: the documentation's table is made from this."""
