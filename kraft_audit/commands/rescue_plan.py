"""`rescue --plan`: which copy of the log to go on from where a controller quorum lost its majority."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from kraft_audit.commands.arguments import LogsOrLake, node_ids_of
from kraft_audit.commands.branch_option import branch_of
from kraft_audit.commands.results import Results
from kraft_audit.commands.verdicts import Verdicts, decision_lines, print_lines
from kraft_audit.text.output import Format
from kraft_audit.text.readable import duration, nouns, offset_span, when

if TYPE_CHECKING:
    from kraft_audit.recovery.lost_quorum.rescue_plan import CopyOutcome, RescuePlan
    from kraft_audit.recovery.restore.state_differences import Operation

KEYS: Final = (
    *("cluster_id", "verdict", "reason", "next_steps", "outcomes", "chosen", "voters", "kraft_version", "gone"),
    *("low", "high", "newest_epoch", "end_offset", "uncaptured_brokers", "is_end_proven", "asked_again", "disks_left"),
)
OPERATIONS_SHOWN: Final = 8


def show_plan(logs: LogsOrLake, gone: str | None, branch: str | None, output: Format) -> int:
    """Rank the copies of the metadata log that are left, and say what each keeps, loses, brings back and commits."""
    missing = node_ids_of("--gone", gone)
    results = Results(output, KEYS)
    verdicts = Verdicts(results)
    for cluster in results.each_cluster(logs, branch_of(branch)):
        plan = cluster.rescue_plan(missing)
        verdicts.add(plan.verdict, {"cluster_id": cluster.cluster_id, **asdict(plan)})
        if results.is_table:
            results.title(cluster)
            print_lines(results.out, plan_lines(plan))
    return verdicts.end()


def plan_lines(plan: RescuePlan) -> Iterator[tuple[str, str]]:
    """The plan for people: a word, and what it says."""
    yield from decision_lines("plan" if plan.verdict == "a plan stands" else plan.verdict, plan)
    if plan.best is not None:
        yield "brokers", _brokers_text(plan)
    for place, outcome in enumerate(plan.outcomes):
        yield "", ""
        yield from _copy_lines(plan, outcome, place + 1)


def _brokers_text(plan: RescuePlan) -> str:
    """How far the brokers' copies of the log go, and whether anything may have been committed after all copies."""
    newest, missing = plan.newest_broker_copy, plan.uncaptured_brokers
    if newest is None:
        text = "No broker's copy of this log was read"
    else:
        text = f"The newest broker's copy is that of {newest.name}: epoch {newest.last_epoch}, end {newest.end_offset}"
    if plan.is_end_proven:
        return f"{text}. No broker has seen anything after these copies, provided that they were made after the loss."
    more = f" Not read: {nouns('broker', missing)}." if missing else ""
    return f"{text}. More may have been committed after the copies here: stop all brokers first.{more}"


def _copy_lines(plan: RescuePlan, outcome: CopyOutcome, rank: int) -> Iterator[tuple[str, str]]:
    copy = outcome.copy
    role = "voter" if copy.is_voter else "observer"
    source = f"snapshot {copy.snapshot}" if copy.snapshot else "log"
    yield f"COPY {rank}", f"{copy.name}, {role}, {source}: epoch {copy.last_epoch}, end offset {copy.end_offset}"
    if copy.last_record_ms is not None:
        age_ms = time.time_ns() // 1_000_000 - copy.last_record_ms
        yield "age", f"Its last record is of {when(copy.last_record_ms)}: {duration(age_ms)} old."
    if copy.excluded:
        yield "out", f"Not ranked: {copy.excluded}."
    if not outcome.is_complete:
        yield "incomplete", "Records are missing in it: no state can be built from it alone."
    keeps = f"everything below offset {outcome.keeps_to}" if outcome.keeps_to else "nothing that is proven committed"
    yield "keeps", f"Surely keeps {keeps}."
    if outcome.lost_from < outcome.lost_to:
        yield "loses", f"Surely loses {offset_span(outcome.lost_from, outcome.lost_to)}, already committed."
    if outcome.loses:
        yield "may lose", _named(outcome.loses)
    if outcome.unknown_from is not None:
        away = f" ({nouns('node', plan.gone)})" if plan.gone else ""
        text = f"what only disks held that were not read{away}, from offset {outcome.unknown_from} on; nothing names it"
        yield "" if outcome.loses else "may lose", text
    if outcome.brings_back:
        yield "brings back", _named([*outcome.brings_back])
    if outcome.gains:
        yield "commits", f"{_named(outcome.gains)}: not proven committed until now"
    elif copy.end_offset > outcome.keeps_to:
        yield "commits", f"{offset_span(outcome.keeps_to, copy.end_offset)}, not proven committed: no operation"


def _named(operations: Sequence[Operation]) -> str:
    texts = [operation.text for operation in operations[:OPERATIONS_SHOWN]]
    more = len(operations) - len(texts)
    return "; ".join(texts) + (f"; {more} more: --output json" if more else "")
