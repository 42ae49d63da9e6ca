"""The tests that the list of mistakes names are there: what was found once is kept."""

from __future__ import annotations

import re
from pathlib import Path

HEAD = "### Mistakes that tests found on the way, and the tests that keep them"
NAMED = re.compile(r"(?:`(test_\w+)` in )?`(tests/[\w/]+\.py)`")


def test_every_mistake_is_kept_by_a_test_that_exists(project_root: Path) -> None:
    rows = [line for line in (project_root / "CHANGELOG.md").read_text().split(HEAD)[1].splitlines() if "|" in line][2:]
    assert len(rows) > 60
    for row in rows:
        named = NAMED.findall(row)
        assert named or "seed" in row, row
        for test, path in named:
            assert f"def {test}" in (project_root / path).read_text(), (test, path)
