"""One line for each place that could not be read, none for files that are never read."""

from __future__ import annotations

from kraft_audit.capture.path_plans import unread_lines
from kraft_audit.capture.plan import PlannedDamage
from kraft_codec.errors import Reason


def test_a_line_for_each_place_that_may_have_held_a_log() -> None:
    found = unread_lines(
        [
            PlannedDamage("logs", "node-1/link", 0, 0, Reason.BAD_FILE, "a link, which is not followed"),
            PlannedDamage("logs", "node-2/deep/dir", 0, 0, Reason.UNREADABLE, "permission denied"),
            PlannedDamage("logs", "node-3", 0, 0, Reason.UNREADABLE, "an input/output error"),
            PlannedDamage("a.tgz", "", 512, 0, Reason.BAD_FILE, "the archive is damaged"),
        ]
    )
    lines = list(found)
    assert len(lines) == 2
    assert lines[0].startswith("logs: node-3")
    assert "(and 1 more, in decode_errors)" in lines[0]
    assert lines[1] == "a.tgz: the archive is damaged at byte 512: replicas may be missing"
