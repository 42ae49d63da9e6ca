"""What drills that really ran gave, as a page: each with the day, the machine, the seconds and the verdict."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tests.drills.drill import Drill

RESULTS: Final = Path(__file__).parents[2] / "docs" / "drills.md"
HEAD: Final = """# Rescue drills

Each drill starts a real Kafka quorum with brokers on loopback, lets it lose the majority of its controllers for good,
runs `kraft-audit rescue` and follows the printed procedure, every command as it was printed. It passes where the
rescued node leads, topics, configs, ACLs, quotas, credentials and features are those at the cut, every acknowledged
send can be read, logs of lost and reassigned topics come back by the printed steps, and the quorum grows back to
three voters. Where an old majority returns after the procedure the quorum must stand, also when its leader dies;
where it returns against it, what the procedure warned of happens. In `combined` drills nodes are controller and broker
in one process, and the brokers of the lost nodes are lost with their data.

```
make drills
```

runs them all in about an hour on two processors and writes this table, then the longest cases of other tests, two
hours in all; CI runs one. A row is of the day on which that drill ran last.

| drill | what | Kafka | seconds | verdict | day | machine |
| --- | --- | --- | --- | --- | --- | --- |
"""


def machine() -> str:
    """Processors, memory and JVM of this machine."""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    ran = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True)
    return f"{os.cpu_count()} cores, {memory_gib:.0f} GiB, {platform.system()}, Java {ran.stderr.split(chr(34))[1]}"


def write_results(ran: Mapping[str, tuple[float, str]], drills: Iterable[Drill]) -> None:
    """Writes the page. `ran`: seconds and verdict by drill. Drills that did not run keep the row that they have."""
    rows = {}
    if RESULTS.exists():
        lines = [line for line in RESULTS.read_text().splitlines() if line.startswith("| ")]
        rows = {line.split(" | ")[0].removeprefix("| "): line for line in lines[2:]}
    day, here = f"{datetime.now(UTC):%Y-%m-%d}", machine()
    for drill in drills:
        if drill.name in ran:
            seconds, verdict = ran[drill.name]
            cells = (drill.name, drill.story, drill.release, f"{seconds:.0f}", verdict, day, here)
            rows[drill.name] = f"| {' | '.join(cells)} |"
    RESULTS.write_text(HEAD + "\n".join(rows[drill.name] for drill in drills if drill.name in rows) + "\n")
