"""What drills that really ran gave, as a page: each with the day, the machine, the seconds and the verdict."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tests.drills.drill import Drill
from tests.drills.loss_table import LossDrill
from tests.drills.testimony_table import TestimonyDrill

RESULTS: Final = Path(__file__).parents[2] / "docs" / "drills.md"
HEAD: Final = """# Rescue drills

Each drill starts a real Kafka quorum with brokers on loopback, lets it lose the majority of its controllers for good,
runs `kraft-audit rescue` and follows the printed procedure, every command as it was printed. It passes where the
rescued node leads, topics, configs, ACLs, quotas, credentials and features are those at the cut, every acknowledged
send can be read, logs end and groups go on where they did, logs of lost and reassigned topics come back by the printed
steps, and the quorum grows back to three voters. Where copies show the lost part, all of it is back in the end. Where
an old majority returns after the procedure the quorum must stand, also when its leader dies; where it returns against
it, what the procedure warned of happens. Controllers start with the config that was written or printed, and with
nothing else, and tools log in with what was written for them; in `authorizer` and `listeners` drills a user without
rights is refused before and after. In `night-old`, `damaged`, `snapshot` and `transaction` drills the command of the
rescue is the one that `rescue --plan` prints. In `combined` drills nodes are controller and broker in one process, and
the brokers of the lost nodes are lost with their data.

```
make drills
```

runs them all in about an hour on two processors and writes this table, then the longest cases of other tests, two
hours in all; CI runs four. A row is of the day on which that drill ran last.

| drill | what | Kafka | seconds | verdict | day | machine |
| --- | --- | --- | --- | --- | --- | --- |
"""
LOSS_HEAD: Final = """
## Loss drills

Each drill starts real brokers, sends with acks=all, keeps a ledger of what Kafka acknowledged, and lets a story happen
to the partition. It passes where the audit names exactly the loss that Kafka's own consumer finds against the ledger,
before and after every partition has a leader again, and the brokers whose disks still hold the records, which Kafka's
own dump confirms. Where nothing is lost it may name only an election of a replica that Kafka could not know to be
complete. `kill -9` keeps the page cache: a power cut is played by cutting the log of the killed broker. CI runs three
of these, and one in which the disk of the last leader is wiped after `may-i` said no.

| drill | what | Kafka | records lost | named | seconds | verdict | day | machine |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
"""
CAUSES: Final = """
## Causes that look alike

What `check` says of a broker's absence names the other situations that leave the same records. Two pairs have a
drill with real brokers of 4.3.1 in `tests/drills/test_stated_causes.py`: a process under SIGSTOP and one whose way to
the controller is cut, and a broker without leaderships that is stopped and one that is killed.

Seen in the first: both leave a fence and an unfencing of the same incarnation, and `check` says both. With logging at
WARN the broker that was cut off printed no line either: its server.log can decide at INFO alone, as Kafka ships it.
"""
"""What was seen of causes that leave the same records: told, not measured."""
TESTIMONY_HEAD: Final = """
## Testimony drills

Each drill starts a real quorum with topics and acknowledged records, and brings it into a situation that the metadata
log alone does not show: another file of a node, its configuration, or the time of a file does. Then its disks are
copied, `check`, `may-i`, `rescue --plan` and `rescue` are asked, and what they print is followed to the letter: a node
starts only after a yes about it that assumes the nodes that really run, printed commands run as they stand, and asking
the same question of the same copy twice fails the drill. It passes where all voters vote again, except one that was
to stay down, topics, configs, ACLs, quotas and credentials are what they were, and every acknowledged record can be
read. Where an answer is no and trying it is cheap, the drill does it all the same, on disks that it puts back, and
Kafka's own dump shows what is gone. In the last two, disks have the same bytes: only the times of files, or whether
the nodes run, tell a voter that is cut off from a dead majority. CI runs one of these.

| drill | what | Kafka | seconds | verdict | day | machine |
| --- | --- | --- | --- | --- | --- | --- |
"""


def machine() -> str:
    """Processors, memory and JVM of this machine."""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    ran = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True)
    return f"{os.cpu_count()} cores, {memory_gib:.0f} GiB, {platform.system()}, Java {ran.stderr.split(chr(34))[1]}"


def write_results(
    ran: Mapping[str, tuple[float, str]],
    rescues: Iterable[Drill],
    losses: Iterable[LossDrill],
    testimonies: Iterable[TestimonyDrill],
) -> None:
    """Writes the page. `ran`: seconds and verdict by test. Drills that did not run keep the row that they have."""
    rows = {}
    if RESULTS.exists():
        lines = [line for line in RESULTS.read_text().splitlines() if line.startswith("| ")]
        rows = {line.split(" | ")[0].removeprefix("| "): line for line in lines}
    day, here = f"{datetime.now(UTC):%Y-%m-%d}", machine()
    parts = []
    for head, told in ((HEAD, _rescues(rescues)), (LOSS_HEAD, _losses(losses)), (TESTIMONY_HEAD, _told(testimonies))):
        parts.append(head)
        for name, cells in told:
            if name in ran:
                seconds, verdict = ran[name]
                rows[name] = f"| {' | '.join((name, *cells, f'{seconds:.0f}', verdict, day, here))} |"
            if name in rows:
                parts.append(rows[name] + "\n")
    RESULTS.write_text("".join([*parts, CAUSES]))


Row = tuple[str, tuple[str, ...]]
"""The name of a row, and the cells that say what the drill is."""


def _rescues(drills: Iterable[Drill]) -> Iterator[Row]:
    for drill in drills:
        yield drill.name, (drill.story, drill.release)


def _losses(drills: Iterable[LossDrill]) -> Iterator[Row]:
    """A rescue may have the same name as a loss."""
    for drill in drills:
        said = "nothing" if drill.label is None else ", ".join([drill.label.value] * drill.times)
        yield f"loss: {drill.name}", (drill.what, drill.release, "yes" if drill.is_lost else "no", said)


def _told(drills: Iterable[TestimonyDrill]) -> Iterator[Row]:
    for drill in drills:
        yield f"told: {drill.name}", (drill.what, drill.release)
