"""Judges a history by the rules: cases become findings with keys, counted once, all at once or part by part."""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

import pyarrow as pa

from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.columns.declared_recovery import declared_waiver, fitting_recoveries
from kraft_audit.rules.columns.partition_parts import PARTS_SCHEMA
from kraft_audit.rules.columns.partition_states import partition_states
from kraft_audit.rules.finding_keys import key_of
from kraft_audit.rules.registry import rules
from kraft_audit.rules.rule_model import (
    Case,
    Finding,
    Rule,
    RuleSettings,
    Scope,
    Status,
    clear_finding,
    finding_id,
    finding_of,
    undecided,
)
from kraft_audit.tables.silver import SILVER
from kraft_audit.text.watched_work import doing
from kraft_codec.schemas import Dialect

CHECKING: Final = "checking rule"
NOTHING_READ: Final = "nothing of the metadata log was read"
SEVERAL_DIALECTS: Final = (
    "control records of several dialects: `dialect` of the cluster in fleet.yaml says which one wrote the log"
)
CONTROL_TABLES: Final = frozenset({"voter_sets", "leader_epochs", "watermarks"})
"""The inputs that follow from control records, which dialects read differently."""
NOTHING_REPLAYED: Final = "there is no canonical log: nothing was replayed"
REPLAYED_INPUTS: Final = frozenset({"contradictions", *(name for name in SILVER if name.endswith("_changes"))})
"""The inputs that a replay makes; without a replay they are empty, whatever happened."""


class PartsObserver(Protocol):
    """Is given what is judged of a history that is read back by parts, and what is open of it."""

    def take_part(self, part: ClusterHistory, open_findings: Sequence[Finding]) -> None:
        """A part, judged by all rules but those that look across topics."""

    def take_across(self, each: Rule, across: ClusterHistory, open_findings: Sequence[Finding]) -> None:
        """What a rule that looks across topics was given of all parts."""


def check(
    history: ClusterHistory,
    settings: Mapping[str, RuleSettings] | None = None,
    *,
    only: Iterable[str] | None = None,
    observer: PartsObserver | None = None,
) -> Iterator[Finding]:
    """The findings of one cluster, rule by rule: raised, undecided and clear; waived what a declared rescue explains.

    `settings`: thresholds by rule id (`load_rule_settings`), defaults where absent. `only`: ids to run. `observer` gets
    what is judged by parts.
    """
    wanted = None if only is None else set(only)
    chosen = [each for each in rules().values() if wanted is None or each.id in wanted]
    yield from with_declared(history, _check(chosen, history, settings or {}, observer))


def with_declared(history: ClusterHistory, findings: Iterable[Finding]) -> Iterator[Finding]:
    """Findings, waived where a declared rescue explains them."""
    if not fitting_recoveries(history):
        yield from findings
        return
    for finding in findings:
        waiver = declared_waiver(history, finding)
        yield finding if waiver is None else finding._replace(waiver=waiver)


def _check(
    chosen: Sequence[Rule],
    history: ClusterHistory,
    settings: Mapping[str, RuleSettings],
    observer: PartsObserver | None,
) -> Iterator[Finding]:
    by_part = [] if history.parts is None else [each for each in chosen if each.is_by_part]
    yield from check_others(chosen, by_part, history, settings)
    judge = PartsJudge(by_part, history, settings)
    yield from judge.not_applicable
    for part in history.histories_by_part() if by_part else ():
        yield from judge.findings(part, observer)
    yield from judge.end(history, observer)


def check_others(
    chosen: Iterable[Rule], by_part: Sequence[Rule], history: ClusterHistory, settings: Mapping[str, RuleSettings]
) -> Iterator[Finding]:
    """The findings of the rules that are not judged by parts."""
    for each in chosen:
        if each not in by_part:
            doing(f"{CHECKING} {each.id} {each.name}")
            yield from check_rule(each, history, settings.get(each.id, {}))


def check_rule(each: Rule, history: ClusterHistory, settings: RuleSettings) -> Iterator[Finding]:
    """The findings of one rule: its cases, or one finding that it is clear or undecided.

    A finding has as many cases as it has episodes.
    """
    if (finding := _not_applicable(each, history)) is not None:
        yield finding
        return
    run = _RuleRun(each, settings)
    if each.asked_by is not None and not {**each.defaults, **settings}[each.asked_by]:
        yield from run.end(history, f"not asked: {each.id}.{each.asked_by} in rules.yaml asks for it")
        return
    yield from run.findings(history)
    yield from run.end(history)


def _not_applicable(each: Rule, history: ClusterHistory) -> Finding | None:
    """The one finding of a rule that does not apply, or lacks a table that it needs; None where it can run."""
    if history.dialect is None:
        if len(each.dialects) < len(Dialect) or CONTROL_TABLES.intersection(each.needs):
            return _undecided_rule(each, history, SEVERAL_DIALECTS)
    elif history.dialect not in each.dialects:
        if not history.is_read:
            return _undecided_rule(each, history, NOTHING_READ)
        reason = f"does not apply to a log of dialect {history.dialect}"
        return clear_finding(each, history.cluster_id, reason, history.history_id)
    missing = [name for name in each.needs if not history.has(name)]
    return _undecided_rule(each, history, f"not captured: {', '.join(missing)}") if missing else None


def _undecided_rule(each: Rule, history: ClusterHistory, reason: str) -> Finding:
    return finding_of(each, history.cluster_id, undecided("", reason), history.history_id)


def unreplayed_reason(history: ClusterHistory) -> str | None:
    """Why a cluster has no replayed state, so that an empty one proves nothing; None where it was replayed."""
    if not history.is_read:
        return NOTHING_READ
    return None if history.is_replayed else NOTHING_REPLAYED


class _RuleRun:
    """One rule's findings, of one history or of its parts in turn: those of large ones."""

    def __init__(self, each: Rule, settings: RuleSettings, *, is_by_part: bool = False) -> None:
        self.rule = each
        self._limits = each.limits_of(settings)
        self._counts: EpisodeCounts | JudgedEpisodes = JudgedEpisodes() if is_by_part else EpisodeCounts()

    def findings(self, history: ClusterHistory, *, is_later_part: bool = False) -> Iterator[Finding]:
        for case in self.rule.function(history, self._limits):
            key = key_of(self.rule.id, self.rule.scope, history, case)
            if not self._is_reported(history, case, key):
                continue
            episode = (key, case.from_ms if case.from_offset is None else case.from_offset)
            # A case about the whole cluster comes again with every part.
            if is_later_part and case.subject == Scope.CLUSTER and episode in self._counts:
                continue
            count = self._counts.add(episode)
            if count > 1:
                # Two cases with one key are a fault of the key, which tests find; neither case may be lost for it.
                key = f"{key} #{count}"
            yield finding_of(self.rule, history.cluster_id, case, history.history_id, key)

    def _is_reported(self, history: ClusterHistory, case: Case, key: str) -> bool:
        """Whether an episode is open, or began or ended after the records that were judged earlier.

        Of what had ended before, the rows that are carried tell only in part.
        """
        carried, begin = history.carried, case.from_ms if case.from_offset is None else case.from_offset
        if carried is None or begin is None or (case.from_offset is not None and begin >= carried.to_offset):
            return True
        if begin in carried.begins.get(finding_id(history.history_id or history.cluster_id, *self._id_of(key)), ()):
            return True
        if not self.rule.begins_late:
            return False
        if case.to_offset is not None:
            return case.to_offset >= carried.to_offset
        if case.is_over:
            return case.to_ms is not None and (carried.to_ms is None or case.to_ms > carried.to_ms)
        return True

    def _id_of(self, key: str) -> tuple[str, str, str]:
        return self.rule.id, self.rule.scope.value, key

    def end(self, history: ClusterHistory, reason: str | None = None) -> Iterator[Finding]:
        """The finding of a rule without a case: clear, or undecided where it could not have found one."""
        if self._counts:
            return
        is_blind = not history.is_read or REPLAYED_INPUTS.intersection(self.rule.needs)
        if is_blind and (unseen := unreplayed_reason(history)) is not None:
            yield _undecided_rule(self.rule, history, unseen)
        else:
            yield clear_finding(self.rule, history.cluster_id, reason, history.history_id)


class PartsJudge:
    """Rules about partitions, over a history that is read back by parts.

    Parts may be judged elsewhere, each with all partitions of its topics: `take` gets what was found there.
    """

    def __init__(
        self, partition_rules: Iterable[Rule], history: ClusterHistory, settings: Mapping[str, RuleSettings]
    ) -> None:
        self.not_applicable: list[Finding] = []
        self._runs: list[_RuleRun] = []
        for each in partition_rules:
            if (finding := _not_applicable(each, history)) is not None:
                self.not_applicable.append(finding)
            else:
                self._runs.append(_RuleRun(each, settings.get(each.id, {}), is_by_part=True))
        self._rows_across: dict[str, list[pa.Table]] = {run.rule.id: [] for run in self._runs if run.rule.across}
        self.ids_with_case: set[str] = set()
        """The rules that found a case in the parts so far."""
        self._is_later_part = False

    def findings(self, part: ClusterHistory, observer: PartsObserver | None = None) -> Iterator[Finding]:
        """The findings of a part."""
        open_findings: list[Finding] = []
        for run in self._runs:
            doing(f"{CHECKING} {run.rule.id} {run.rule.name}")
            if run.rule.across is None:
                for finding in run.findings(part, is_later_part=self._is_later_part):
                    self.ids_with_case.add(run.rule.id)
                    if observer is not None and finding.is_open:
                        open_findings.append(finding)
                    # Deferred evidence would hold the part in memory until it is read.
                    yield finding._replace(evidence=tuple(finding.evidence))
            else:
                states, mask = partition_states(part), run.rule.across(part)
                self._rows_across[run.rule.id].append(states.changes.table.take(pa.array(states.order[mask])))
        self._is_later_part = True
        if observer is not None:
            observer.take_part(part, open_findings)

    def rows_across(self) -> dict[str, pa.Table]:
        """By rule, the rows of the parts so far that rules across topics need."""
        return {rule_id: _across(tables) for rule_id, tables in self._rows_across.items()}

    def take(self, ids_with_case: Iterable[str], rows_across: Mapping[str, pa.Table]) -> None:
        """Takes what was found in parts that were judged elsewhere."""
        self.ids_with_case.update(ids_with_case)
        for rule_id, rows in rows_across.items():
            self._rows_across[rule_id].append(rows)

    def end(self, history: ClusterHistory, observer: PartsObserver | None = None) -> Iterator[Finding]:
        """When all parts were judged: the findings across topics, and of rules without a case what that means."""
        for run in self._runs:
            if run.rule.across is not None:
                across = history.with_partitions(_across(self._rows_across[run.rule.id]))
                open_findings: list[Finding] = []
                for finding in run.findings(across):
                    self.ids_with_case.add(run.rule.id)
                    open_findings += [finding] if finding.is_open else []
                    yield finding
                if observer is not None:
                    observer.take_across(run.rule, across, open_findings)
            if run.rule.id not in self.ids_with_case:
                yield from run.end(history)


def _across(tables: Sequence[pa.Table]) -> pa.Table:
    return pa.concat_tables([PARTS_SCHEMA.empty_table(), *tables])


def by_severity(findings: Iterable[Finding]) -> list[Finding]:
    """Raised ones first, the worst of them first, then by rule; within a rule those that last, the oldest first."""

    def order(finding: Finding) -> tuple[Any, ...]:
        began = -1 if finding.from_offset is None else finding.from_offset
        kind = (finding.status is not Status.RAISED, -finding.severity.rank, finding.rule)
        return *kind, finding.is_over, began, finding.subject

    return sorted(findings, key=order)


EpisodeKey = tuple[str, int | None]
"""What a finding is known by, and the offset or the time where the episode began."""
_SLOTS_MIN: Final = 1 << 12


class EpisodeCounts(dict[EpisodeKey, int]):
    """How often each episode was reported, of as many as fit into memory as they are: a third of the time."""

    def add(self, episode: EpisodeKey) -> int:
        """Counts an episode: 1 where it is new."""
        count = self[episode] = self.get(episode, 0) + 1
        return count


class JudgedEpisodes:
    """How often each episode was reported.

    Nearly all come once, and of those 64 bits of a digest are held, which tell a hundred million apart. Those that come
    again are counted.
    """

    def __init__(self) -> None:
        self._slots = array("Q", bytes(8 * _SLOTS_MIN))
        self._used = 0
        self._repeated: Counter[EpisodeKey] = Counter()

    def __len__(self) -> int:
        return self._used

    @property
    def size_bytes(self) -> int:
        """What the numbers take."""
        return self._slots.itemsize * len(self._slots)

    def __contains__(self, episode: EpisodeKey) -> bool:
        return bool(self._slots[self._slot(_number_of(episode))])

    def add(self, episode: EpisodeKey) -> int:
        """Counts an episode: 1 where it is new."""
        number = _number_of(episode)
        slot = self._slot(number)
        if self._slots[slot]:
            self._repeated[episode] += 1
            return self._repeated[episode] + 1
        self._slots[slot] = number
        self._used += 1
        if 2 * self._used > len(self._slots):
            self._grow()
        return 1

    def _slot(self, number: int) -> int:
        """Where a number is, or would be: the next free place after the one that it gives."""
        slots = self._slots
        last = len(slots) - 1
        slot = number & last
        while (there := slots[slot]) and there != number:
            slot = (slot + 1) & last
        return slot

    def _grow(self) -> None:
        earlier, self._slots = self._slots, array("Q", bytes(16 * len(self._slots)))
        for number in earlier:
            if number:
                self._slots[self._slot(number)] = number


def _number_of(episode: EpisodeKey) -> int:
    """64 bits of an episode, never 0."""
    digest = hashlib.blake2b("\0".join(map(str, episode)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") or 1
