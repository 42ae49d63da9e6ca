"""Rules about logs that carry one cluster id and are not one log: formatted again, copied, or split."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kraft_audit.capture.histories import COPIED_IDS
from kraft_audit.capture.plan import HistoryOf, HistorySummary
from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.columns.declared_recovery import DeclaredRecovery, fitting_recoveries, is_left_behind
from kraft_audit.rules.columns.voter_sets import keys_of, named, set_evidence
from kraft_audit.rules.registry import rule
from kraft_audit.rules.rule_model import Case, Evidence, Thresholds
from kraft_audit.text.readable import when
from kraft_codec.file_names import printable


@rule("KB009", control="log_integrity", needs=("captures",))
def kb009(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    """Raised once, by the newest history: what each of the others is is said there."""
    known = history.history_of
    if known.number or len(known.histories) < 2:
        return
    yield Case(
        "cluster id",
        f"{len(known.histories)} histories have this cluster id, the newest is judged first: {_reason(history)}",
        from_offset=0,
        from_ms=known.mine.from_ms,
        evidence=tuple(_history_evidence(summary) for summary in known.histories),
    )


@rule("KV012", control="quorum_safety", needs=("voter_sets",))
def kv012(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    first_sets = {keys_of(row["voters"]): row for row in history.rows("voter_sets") if row["source"] == "bootstrap"}
    if len(first_sets) > 1:
        texts = " and ".join(named(keys) for keys in sorted(first_sets, key=str))
        text = f"one cluster id, {len(first_sets)} first voter sets: {texts}"
        yield Case("bootstrap voters", text, -1, evidence=tuple(map(set_evidence, first_sets.values())))
        return
    known = history.history_of
    for summary in known.histories[1:] if known.number == 0 else ():
        if beside := _beside(known.mine, summary):
            both = f"{_named_nodes(known.mine)} and {_named_nodes(summary)}"
            text = f"{both} lie side by side in {beside} and are quorums of their own"
            evidence = (_history_evidence(known.mine), _history_evidence(summary))
            ids = [*known.mine.directory_ids, *summary.directory_ids] or [both]
            key = f"bootstrap voters {' '.join(ids)}"
            yield Case("bootstrap voters", text, -1, from_ms=known.mine.from_ms, evidence=evidence, key=key)


def _reason(history: ClusterHistory) -> str:
    known = history.history_of
    if history.cluster_id in COPIED_IDS:
        return f"{COPIED_IDS[history.cluster_id]}, so other clusters have it too"
    recoveries = fitting_recoveries(history)
    return "; ".join(_relation(known, summary, recoveries) for summary in known.histories[1:])


def _relation(known: HistoryOf, summary: HistorySummary, recoveries: Sequence[DeclaredRecovery]) -> str:
    """What an older history is to the newest one, as far as node dirs and times show."""
    mine = known.mine
    nodes = _named_nodes(summary)
    for recovery in recoveries:
        if is_left_behind(recovery.rescue, summary):
            return f"{nodes} were left behind by the rescue of node {recovery.rescue.node_id}, as its rescue.json says"
    if _beside(mine, summary):
        return f"{nodes} began alone, beside {_named_nodes(mine)}"
    if {replica.folder for replica in mine.replicas} & {replica.folder for replica in summary.replicas}:
        folders = ", ".join(sorted(printable(replica.path) for replica in summary.replicas))
        return f"{folders} is a left-over of {nodes}"
    is_over = summary.to_ms is not None and mine.from_ms is not None and summary.to_ms <= mine.from_ms
    if set(mine.node_ids) & set(summary.node_ids) and is_over:
        return f"{nodes} was formatted again with the same id at {_time(mine.from_ms)}"
    return f"{nodes} wrote another log: the id was copied"


def _beside(first: HistorySummary, second: HistorySummary) -> str | None:
    """The folder in which node dirs of both with different node ids lie; None where there is none."""
    for place in sorted({replica.folder for replica in first.replicas} & {each.folder for each in second.replicas}):
        ids = [{each.node_id for each in group.replicas if each.folder == place} for group in (first, second)]
        if not ids[0] & ids[1]:
            return printable(place[2]) or "one folder"
    return None


def _named_nodes(summary: HistorySummary) -> str:
    ids = ", ".join(map(str, summary.node_ids)) or "without meta.properties"
    return f"node{'s' * (len(summary.node_ids) > 1)} {ids}"


def _time(time_ms: int | None) -> str:
    return "an unknown time" if time_ms is None else when(time_ms)


def _history_evidence(summary: HistorySummary) -> Evidence:
    directories = f", directory {', '.join(summary.directory_ids)}" if summary.directory_ids else ""
    span = f"written {_time(summary.from_ms)} to {_time(summary.to_ms)}"
    first = min(summary.replicas, key=lambda replica: replica.sort_key)
    return Evidence(
        f"{_named_nodes(summary)}{directories}: {span}, log end offset {summary.end_offset}",
        node_id=first.node_id,
        path=printable(first.path),
    )
