"""A report straight from log dirs: the histories that `check` reads, judged by the same rules. No Spark, no lake."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version

from kraft_audit.report.source import AsOf, ClusterInput, rules_version
from kraft_audit.rules import registry
from kraft_audit.rules.history import ClusterHistory
from kraft_audit.rules.model import Thresholds, Waiver
from kraft_audit.rules.tables import finding_rows
from kraft_audit.rules.waivers import apply_waivers


@dataclass(slots=True)
class PathSource:
    """Clusters below a path. `histories` is read once, from front to end."""

    path: str
    histories: Iterator[ClusterHistory]
    settings: Mapping[str, Thresholds] = field(default_factory=dict)
    waivers: Sequence[Waiver] = ()
    now_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)

    def as_of(self) -> AsOf:
        return AsOf(self.path, "log dirs", self.now_ms, version("kraft-audit"), rules_version())

    def clusters(self) -> Iterator[ClusterInput]:
        for history in self.histories:
            found = list(registry.check(history, self.settings))
            judged, _ = apply_waivers(found, self.waivers, self.now_ms)
            rows = finding_rows(judged, seen_ms=history.seen_ms)
            for row, finding in zip(rows, judged, strict=True):
                expired = finding.expired_waiver
                row["expired_waiver"] = None if expired is None else {"who": expired.who, "until": expired.until}
            yield ClusterInput(history, rows)
