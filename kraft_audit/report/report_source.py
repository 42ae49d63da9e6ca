"""What a report is made from: one cluster at a time, from log dirs or from a lake, in the same form.

Nothing is guessed: what a source does not hold is None or absent, and the pages say so.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Protocol

import pyarrow as pa

from kraft_audit.findings.finding_formats import finding_rows
from kraft_audit.findings.rule_pages import rule_rows
from kraft_audit.findings.situation import NOT_ASKED, Situation, situation_of
from kraft_audit.incidents.folding import fold
from kraft_audit.incidents.incident import incident_row
from kraft_audit.picture.whole_picture import DrawnApart
from kraft_audit.recovery.may_i.permission_table import Permissions
from kraft_audit.rules import judging
from kraft_audit.rules.cluster_history import ClusterHistory, TableRow
from kraft_audit.rules.columns.quorum_standing import quorum_standing
from kraft_audit.rules.rule_model import RuleSettings, Waiver
from kraft_audit.rules.rule_settings import apply_waivers


@dataclass(frozen=True, slots=True)
class TableVersion:
    """A Delta table as it was read: its version and when that was committed."""

    table: str
    version: int
    committed_ms: int | None


@dataclass(frozen=True, slots=True)
class NotRead:
    """A cluster of the fleet that could not be read, or only in part, when last tried, and why."""

    name: str
    why: str
    tried_ms: int


@dataclass(frozen=True, slots=True)
class AsOf:
    """The source of everything on the pages, and its time. `plan` is the newest closed plan of a lake.

    `not_read` are clusters that a lake's plans could not read: what the pages show of them, if anything, is older.
    `expected` are the names of all clusters that fleet.yaml had, read or not. `closed_ms` is when that plan was closed.
    """

    source: str
    kind: str
    made_at_ms: int
    tool_version: str
    rules_version: str
    plan: int | None = None
    versions: tuple[TableVersion, ...] = ()
    not_read: tuple[NotRead, ...] = ()
    expected: tuple[str, ...] = ()
    closed_ms: int | None = None


@dataclass(frozen=True, slots=True)
class PageOrigin:
    """What a lake last did about a cluster: the newest closed plan that read it, and when it or a finding changed.

    `row_counts` are those of tables that a page shows more of than `ClusterInput` holds, `is_asked` says whether
    `may-i` answers.
    """

    plan: int
    at_ms: int
    row_counts: tuple[int, ...]
    is_asked: bool


@dataclass(frozen=True, slots=True, eq=False)
class ClusterInput:
    """One cluster: its history, its findings as rows of the table `findings`, and what people call it.

    `exposed_minutes` is the exposure by day (ms of its midnight, UTC) if the source has it; else `exposed_spans`
    (columns of `whole_picture.SPANS`) if the source has those; without either, exposure is computed from
    `partition_changes`. That table may lack rows that no page shows; then `first_change_ms` is the time of the first
    row of the whole table. `judged_rules` are the rules that were judged; None means those of `findings`, where a rule
    that found nothing has a row of status clear. `incidents` are rows of the table `incidents`. `situation` is what
    `check` says of the cluster first. `drawn` is the same history with the batches of its log, where `history` lacks
    them and they are few; `apart` is what the picture shows of tables that are not whole. `permissions` is what `may-i`
    answers, None where it was not asked. `labels` are what fleet.yaml says of the cluster, as `owner`. `origin` is what
    a lake did, None of log dirs.
    """

    history: ClusterHistory
    findings: Sequence[TableRow]
    name: str | None = None
    exposed_minutes: Mapping[int, float] | None = None
    exposed_spans: pa.Table | None = None
    first_change_ms: int | None = None
    judged_rules: frozenset[str] | None = None
    incidents: Sequence[TableRow] = ()
    situation: Situation = NOT_ASKED
    permissions: Permissions | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    drawn: ClusterHistory | None = None
    apart: DrawnApart | None = None
    origin: PageOrigin | None = None

    @property
    def cluster_id(self) -> str:
        return self.history.cluster_id

    @property
    def page_id(self) -> str:
        """What its page is named for: the cluster id, and which of several histories of that id it is."""
        number = self.history.history_of.number
        return f"{self.cluster_id}.history-{number + 1}" if number else self.cluster_id

    @property
    def title(self) -> str:
        """What people call it, and which of several histories it is."""
        return self.history.history_of.title(self.name or self.cluster_id)


HasPage = Callable[[ClusterInput], bool]


def no_page(_: ClusterInput) -> bool:
    """No cluster has a page yet."""
    return False


class ReportSource(Protocol):
    """Where clusters come from. Each is held in memory only while its page is written."""

    def as_of(self) -> AsOf: ...

    def clusters(self, has_page: HasPage = no_page) -> Iterator[ClusterInput]:
        """The clusters in turn; of one that has its page already, a lake reads nothing that only the page shows."""


def rules_version() -> str:
    """A short name of the rules' version: it changes with any id, severity, text or threshold."""
    text = json.dumps(rule_rows(), sort_keys=True, ensure_ascii=False)
    return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()


@dataclass(slots=True)
class PathSource:
    """A report straight from log dirs: the histories that `check` reads, judged by the same rules. No Spark, no lake.

    `histories` is read once, from first to last; each comes with what `may-i` answers, where that is asked.
    """

    path: str
    histories: Iterator[tuple[ClusterHistory, Permissions | None]]
    settings: Mapping[str, RuleSettings] = field(default_factory=dict)
    waivers: Sequence[Waiver] = ()
    now_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)

    def as_of(self) -> AsOf:
        return AsOf(self.path, "log dirs", self.now_ms, version("kraft-audit"), rules_version())

    def clusters(self, has_page: HasPage = no_page) -> Iterator[ClusterInput]:
        for history, permissions in self.histories:
            judged, _ = apply_waivers(list(judging.check(history, self.settings)), self.waivers, self.now_ms)
            folded = fold(history, judged)
            rows = finding_rows(folded.findings, seen_ms=history.seen_ms)
            for row, finding in zip(rows, judged, strict=True):
                expired = finding.expired_waiver
                row["expired_waiver"] = None if expired is None else {"who": expired.who, "until": expired.until}
            incidents = [incident_row(history.cluster_id, incident) for incident in folded.incidents]
            situation = situation_of(history, quorum_standing(history), folded, self.path)
            yield ClusterInput(history, rows, incidents=incidents, situation=situation, permissions=permissions)
