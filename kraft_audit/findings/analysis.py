"""From a plan to every table of one cluster: bronze, silver and findings, one stream.

`analyze` is what a Spark task calls on a worker and what a notebook reads through `format("kraft")`. The rules stand on
the replay, so the two meet here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

import pyarrow as pa

from kraft_audit.capture.bronze_rows import TableRows, captures_batch
from kraft_audit.capture.plan import ClusterPlan, Selection
from kraft_audit.capture.replica import Replica
from kraft_audit.capture.resumed.kept_log import NotResumableError
from kraft_audit.findings.finding_formats import findings_batch
from kraft_audit.findings.kept_state import KeptState, state_versions
from kraft_audit.findings.loss_rows import loss_rows
from kraft_audit.incidents.folding import Folding, known_incidents
from kraft_audit.losses.replica_disks import ReplicaLog, ReplicaLogs
from kraft_audit.quorum.ordered_reading import OrderedReading, has_several_captures
from kraft_audit.reading import BRONZE_TABLES, ClusterReading, ReadingSettings
from kraft_audit.replay.driver import CapturedRounds
from kraft_audit.replay.replay_state import ReplayBase
from kraft_audit.replay.silver_rows import SILVER_TABLES, silver
from kraft_audit.rules import judging
from kraft_audit.rules.carried.carried_rows import CarriedRows, rules_key
from kraft_audit.rules.carried.carrying import as_carried, carry
from kraft_audit.rules.carried.continued_history import (
    as_until,
    begins_below,
    ends_at,
    history_of,
    new_survey_rows,
    until,
    with_earlier_captures,
)
from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.history_collector import JUDGED_TABLES, GoingOn, HistoryCollector
from kraft_audit.rules.rule_model import Finding, Status
from kraft_audit.tables.bronze import ARCHIVE, BATCHES, CAPTURES, DECODE_ERRORS, RECORDS
from kraft_audit.tables.contract import build_rows, silver_batch, slices
from kraft_audit.tables.gold import JUDGED_FINDINGS, JUDGED_INCIDENTS
from kraft_audit.tables.kept_parts import KeptPartsError
from kraft_audit.tables.losses import LOSSES
from kraft_audit.tables.silver import SILVER

FINDINGS_AT_ONCE: Final = 5_000
WITHOUT_CAPTURES: Final = frozenset({RECORDS.name, ARCHIVE.name})
"""Tables that do not tell which capture showed a row: they need no order of the captures."""
_JUDGED_ROWS: Final = JUDGED_TABLES | {BATCHES.name}
JUDGMENTS: Final = frozenset({JUDGED_FINDINGS.name, JUDGED_INCIDENTS.name, LOSSES.name})
TABLES: Final = BRONZE_TABLES | SILVER_TABLES | JUDGMENTS


@dataclass(slots=True)
class Continuation:
    """What a plan goes on from, and what it leaves for the next one.

    `earlier` is what the plan before it kept, None where there is nothing. `why_whole`, where it is set before, has
    everything read; afterwards it says why everything was, None where it was not. `next_state` is what this plan keeps,
    None where it can keep nothing.
    """

    earlier: KeptState | None = None
    next_state: KeptState | None = None
    why_whole: str | None = None


def analyze(
    plan: ClusterPlan,
    settings: ReadingSettings,
    tables: frozenset[str] = TABLES,
    continuation: Continuation | None = None,
) -> Iterator[TableRows]:
    """The rows of `tables`, in batches of at most 65,000 rows.

    Bronze and silver rows are those that `plan` adds to earlier plans; findings are judged over everything that the
    captures hold, all of them, clear ones included. Bronze comes first: short secrets are numbered as they are met.
    Captures are numbered in the order that they prove. With a continuation bronze and silver rows come from new bytes
    and lag alone, where that can be. Raises InputError where a storage cannot be opened.
    """
    if continuation is None or not tables & SILVER_TABLES:
        yield from _analyze(plan, settings, tables)
        return
    earlier, needs = continuation.earlier, tables
    # What this plan adds to the judged tables, for a judgement that cannot go on but knows earlier captures.
    added: list[TableRows] = []
    if earlier is None:
        continuation.why_whole = continuation.why_whole or "nothing was kept"
    elif continuation.why_whole is not None:
        pass  # what was kept counts as what earlier captures showed
    elif has_several_captures(plan):
        continuation.why_whole = "the order of captures is proven by all records"
    elif tables & JUDGMENTS and not earlier.rules:
        continuation.why_whole = "nothing that was judged was kept"
    else:
        try:
            for name, batch in _gone_on(plan, settings, tables, continuation, earlier):
                needs = tables - BRONZE_TABLES
                added += [(name, batch)] if name in _JUDGED_ROWS else []
                yield name, batch
            return
        except NotResumableError as error:
            continuation.why_whole = str(error)
        except KeptPartsError as error:
            continuation.earlier, continuation.why_whole = None, f"what was kept is of no use: {error}"
    yield from _analyze(plan, settings, needs, continuation, added)


def _gone_on(
    plan: ClusterPlan,
    settings: ReadingSettings,
    tables: frozenset[str],
    continuation: Continuation,
    earlier: KeptState,
) -> Iterator[TableRows]:
    """The rows from what is new alone. Raises NotResumableError before the first row, or after all of bronze."""
    base, judgments = earlier.settled, tables & JUDGMENTS
    with ClusterReading(plan, settings, earlier=earlier.survey, replay_from=(base.fed_to, base.epoch)) as reading:
        carried = CarriedRows.from_bytes(earlier.rules) if judgments else None
        if carried is not None and not carried.is_replayed:
            raise NotResumableError("no log was replayed")
        collector = None if carried is None else HistoryCollector(reading, GoingOn(base, carried))
        wanted = tables & BRONZE_TABLES
        facts, read = (None, wanted) if collector is None else (collector.facts, wanted | JUDGED_TABLES)
        for name, batch in reading.begin(read, facts):
            if collector is not None and name in JUDGED_TABLES:
                collector.take_rows(name, batch)
            if name in wanted:
                yield name, batch
        if collector is not None and carried is not None:
            # Rules judge a round by all of its captures; bronze has those with changes.
            at_rest = [replica for replica in reading.survey.replicas if replica.is_unchanged or replica.at_rest]
            collector.take_rows(CAPTURES.name, _captured_again(at_rest, carried))
        yield from _silver(plan, reading, tables, continuation, base, collector, lists_all=carried is None)
        if collector is not None and carried is not None:
            new = collector.history()
            first_offset = collector.facts.first_offset
            if first_offset is not None and first_offset < carried.merged_to:
                carried = _with_single_batches(carried, plan, settings)
            elif carried.merged_to > base.settled_offset and begins_below(new, carried.merged_to):
                # A transaction has ended, so that its records count by batches.
                carried = _with_single_batches(carried, plan, settings, base.settled_offset)
            history = history_of(carried, new)
            yield from _survey_rows(history, carried, plan, tables)
            yield from _judged_rows(history, plan, judgments, continuation)


def _with_single_batches(
    carried: CarriedRows, plan: ClusterPlan, settings: ReadingSettings, from_offset: int = 0
) -> CarriedRows:
    """Carried rows to compare with batches before their end. Raises NotResumableError without a lake that has them."""
    if not carried.merged_to:
        return carried
    if settings.known is None:
        raise NotResumableError("single batches of earlier plans are not known")
    return carried.with_single_batches(settings.known.batches(plan.key, from_offset, carried.merged_to), from_offset)


_OF_READING: Final = (
    *("captured_at_ms", "captured_at", "capture", "capture_number", "plan", "read_from_ms", "read_to_ms"),
)


def _captured_again(replicas: Sequence[Replica], carried: CarriedRows) -> pa.RecordBatch:
    """Rows of `captures` of replicas that are as they were: what an earlier capture showed, with the times of now."""
    earlier = {(row["root"], row["path"]): row for row in carried.tables[CAPTURES.name].to_pylist()}
    rows = []
    for row in captures_batch(replicas).to_pylist():
        before = earlier.get((row["root"], row["path"]), row)
        rows.append({**row, **before, **{name: row[name] for name in _OF_READING}})
    return build_rows(CAPTURES, rows)


def _silver(
    plan: ClusterPlan,
    reading: ClusterReading,
    tables: frozenset[str],
    continuation: Continuation | None,
    base: ReplayBase | None = None,
    collector: HistoryCollector | None = None,
    *,
    lists_all: bool = True,
) -> Iterator[TableRows]:
    """The silver rows, and what is kept after them."""
    bases: list[ReplayBase] = []
    keep = None if continuation is None else bases.append
    rows = silver(plan, reading, tables & SILVER_TABLES, fold=collector, base=base, keep=keep, lists_all=lists_all)
    for name, batch in rows:
        yield from ((name, part) for part in slices(batch))
    if continuation is None:
        return
    if bases:
        continuation.next_state = KeptState(versions_of(plan), reading.kept_survey(), bases[0])
    elif continuation.earlier is not None:
        # Nothing could be replayed. What was kept stays, for what captures showed.
        continuation.next_state = continuation.earlier


def _survey_rows(
    history: ClusterHistory, carried: CarriedRows, plan: ClusterPlan, tables: frozenset[str]
) -> Iterator[TableRows]:
    """The epochs and voter sets that differ from those that earlier plans wrote."""
    for name, rows in new_survey_rows(carried, history).items():
        if name in tables and rows:
            batch = silver_batch(SILVER[name], plan.cluster_id, plan.number, rows)
            yield from ((name, part) for part in slices(batch))


def versions_of(plan: ClusterPlan) -> dict[str, str]:
    """What a state of a plan's cluster depends on."""
    return state_versions(plan, rules_key({}, dict(plan.defaults)))


def _analyze(
    plan: ClusterPlan,
    settings: ReadingSettings,
    tables: frozenset[str],
    continuation: Continuation | None = None,
    added: Sequence[TableRows] = (),
) -> Iterator[TableRows]:
    """The rows from all records; `added` are bronze rows of this plan that are given already."""
    own = list(added)
    wanted, replayed = tables & BRONZE_TABLES, tables & SILVER_TABLES
    judgments = tables & JUDGMENTS
    is_judged = bool(judgments)
    # A judgement that knows earlier captures asks for them. They are wide rows, one for each batch of each disk.
    is_asked_again = is_judged and continuation is not None and continuation.earlier is not None
    needs_order = bool(tables - WITHOUT_CAPTURES) and has_several_captures(plan)
    if not (replayed or is_judged or needs_order):
        with ClusterReading(plan, settings, keeps_records=False) as bronze:
            yield from bronze.bronze(wanted)
        return
    # Bronze rows leave while the cluster is read, if what is read is what they are of and their order is known.
    leaving = wanted if plan.is_whole and not needs_order else frozenset()
    whole = settings if leaving else replace(settings, known=None, selection=Selection())
    if not plan.is_whole:
        whole = replace(whole, stop_on_change=False)
    known_survey = None if continuation is None or continuation.earlier is None else continuation.earlier.survey
    with OrderedReading(plan, whole, keeps_records=bool(replayed or is_judged), known=known_survey) as ordered:
        collector, taken = None, list[pa.RecordBatch]()
        for reading in ordered:
            collector, taken = HistoryCollector(reading) if is_judged else None, []
            facts, read = (None, leaving) if collector is None else (collector.facts, leaving | JUDGED_TABLES)
            for name, batch in reading.bronze(read, facts):
                if collector is not None and name in JUDGED_TABLES:
                    collector.take_rows(name, batch)
                    taken += [batch] if name == CAPTURES.name else []
                if name in leaving:
                    own += [(name, batch)] if is_asked_again and name in _JUDGED_ROWS else []
                    yield name, batch
        if wanted and not leaving:
            with ordered.once_more(settings) as bronze:
                for name, batch in bronze.bronze(wanted):
                    own += [(name, batch)] if is_asked_again and name in _JUDGED_ROWS else []
                    yield name, batch
        if replayed or is_judged:
            known = None if continuation is None else _known_captures(ordered.plan, settings, continuation, own)
            if known is not None and continuation is not None and continuation.earlier is not None:
                try:
                    yield from _on_all_records(ordered, replayed | judgments, continuation, known, taken)
                    return
                except NotResumableError:
                    pass
            own_tables = replayed | judgments
            yield from _replayed(ordered.plan, ordered.reading, own_tables, collector, continuation, known)


def _on_all_records(
    ordered: OrderedReading,
    tables: frozenset[str],
    continuation: Continuation,
    known: KnownCaptures,
    captures: Sequence[pa.RecordBatch],
) -> Iterator[TableRows]:
    """The rows from what is new, after all records were read: those that rules judged first may be deleted by now.

    `captures` are the rows of this round. Raises NotResumableError before the first row: also where nothing that rules
    know of is deleted, as a replay of everything then says the same.
    """
    plan, reading, (carried, new) = ordered.plan, ordered.reading, known
    if continuation.earlier is None or CapturedRounds.of(reading).start().from_offset <= carried.states_from:
        raise NotResumableError("no record is deleted")
    collector = HistoryCollector(reading, GoingOn(continuation.earlier.settled, carried, is_read_again=True))
    for name, batches in ((CAPTURES.name, captures), *((name, rows.to_batches()) for name, rows in new.items())):
        for batch in batches:
            collector.take_rows(name, batch)
    base = continuation.earlier.settled
    yield from _silver(plan, reading, tables, continuation, base, collector, lists_all=False)
    history = history_of(carried, collector.history())
    yield from _survey_rows(history, carried, plan, tables)
    yield from _judged_rows(history, plan, tables, continuation)


def reanalyze(
    plan: ClusterPlan, settings: ReadingSettings, judged_rows: Iterable[TableRows], tables: frozenset[str]
) -> Iterator[TableRows]:
    """The silver rows in `tables`, and all findings, of captures whose bronze rows are there already.

    `judged_rows` are the rows of `captures`, `batches` and `decode_errors` that the findings are judged by.
    """
    with ClusterReading(plan, settings) as reading:
        collector = HistoryCollector(reading)
        for name, batch in judged_rows:
            collector.take_rows(name, batch)
        yield from _replayed(plan, reading, (tables & SILVER_TABLES) | JUDGMENTS, collector)


def _replayed(
    plan: ClusterPlan,
    reading: ClusterReading,
    tables: frozenset[str],
    collector: HistoryCollector | None,
    continuation: Continuation | None = None,
    known: KnownCaptures | None = None,
) -> Iterator[TableRows]:
    yield from _silver(plan, reading, tables, continuation, collector=collector, lists_all=known is None)
    if collector is not None:
        history = collector.history()
        if known is not None:
            history = with_earlier_captures(known[0], history, known[1])
            yield from _survey_rows(history, known[0], plan, tables)
        yield from _judged_rows(history, plan, tables, continuation)


KnownCaptures = tuple[CarriedRows, dict[str, pa.Table]]
"""What an earlier judgement left, and the judged bronze rows that captures added since."""


def _known_captures(
    plan: ClusterPlan, settings: ReadingSettings, continuation: Continuation, own: Sequence[TableRows]
) -> KnownCaptures | None:
    earlier = continuation.earlier
    if earlier is None or not earlier.rules or has_several_captures(plan):
        return None
    tables: dict[str, pa.Table] = {}
    for table in (BATCHES, DECODE_ERRORS):
        tables[table.name] = pa.Table.from_batches([b for name, b in own if name == table.name], table.schema)
    try:
        return _with_single_batches(CarriedRows.from_bytes(earlier.rules), plan, settings), tables
    except (KeptPartsError, NotResumableError):
        return None


def _judged_rows(
    history: ClusterHistory, plan: ClusterPlan, tables: frozenset[str], continuation: Continuation | None
) -> Iterator[TableRows]:
    """The findings and incidents in `tables`; with a continuation the rows that the next judgement needs are kept."""
    state = None if continuation is None else continuation.next_state
    # Where all that a history has is settled, judging it once says what to keep.
    is_settled = state is not None and ends_at(history, state.settled.settled_offset)
    logs: dict[tuple[str, int], tuple[ReplicaLog, ...]] = {}
    open_findings: list[Finding] | None = [] if is_settled else None
    judged = _judged(history, plan.number, logs, open_findings)
    yield from ((name, part) for name, part in judged if name in tables)
    if continuation is not None and state is not None:
        continuation.next_state = _with_rules(state, history, logs, open_findings)


def _with_rules(
    state: KeptState,
    history: ClusterHistory,
    logs: ReplicaLogs,
    open_findings: Iterable[Finding] | None,
) -> KeptState:
    """A state with the rows that the next judgement needs.

    They follow from `open_findings`; without these from what is settled of the history, which is judged again.
    """
    base = state.settled
    if open_findings is not None:
        before = as_until(history, base.settled_offset, base.fed_to)
    else:
        before = until(history, base.settled_offset, base.fed_to)
        history.forget()
        open_findings = judging.check(before)
    rows = carry(before, open_findings, base.settled_offset, base.fed_to, logs)
    return replace(state, rules=rows.to_bytes())


def _judged(
    history: ClusterHistory,
    plan: int,
    kept: dict[tuple[str, int], tuple[ReplicaLog, ...]],
    open_findings: list[Finding] | None,
) -> Iterator[TableRows]:
    """The findings, and the incidents that they are folded into; `open_findings` gets those that are carried, `kept`
    what was read of brokers' disks."""
    findings = judging.check(history)
    folding = Folding(known_incidents(history), keeps_ids=True)
    folding.see(history)
    for batch in _folded(findings, folding):
        yield JUDGED_FINDINGS.name, findings_batch(batch, seen_ms=history.seen_ms, plan=plan)
        if open_findings is not None:
            open_findings.extend(as_carried(finding) for finding in batch if finding.is_open)
    yield from _incident_rows(folding, history, plan)
    yield from _lost_rows(history, plan, kept)


def _folded(findings: Iterator[Finding], folding: Folding) -> Iterator[list[Finding]]:
    """Findings in lists, raised ones folded into incidents. A log of many partitions may have millions: one list is
    held at a time."""
    while batch := list(islice(findings, FINDINGS_AT_ONCE)):
        for finding in batch:
            if finding.status is Status.RAISED:
                folding.add(finding)
        yield batch


def _incident_rows(folding: Folding, history: ClusterHistory, plan: int) -> Iterator[TableRows]:
    """The incidents into which all findings were folded."""
    rows = [{**row, "plan": plan} for row in folding.rows(history.cluster_id)]
    yield from ((JUDGED_INCIDENTS.name, batch) for batch in slices(build_rows(JUDGED_INCIDENTS, rows)))


def _lost_rows(
    history: ClusterHistory, plan: int, kept: dict[tuple[str, int], tuple[ReplicaLog, ...]]
) -> Iterator[TableRows]:
    """The loss events that are new to the lake, or of which more is known; `kept` gets what was read of their disks."""
    rows = list(loss_rows(history, plan, kept))
    yield from ((LOSSES.name, batch) for batch in slices(build_rows(LOSSES, rows)) if rows)
