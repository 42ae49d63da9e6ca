"""The events of a cluster's history in the order that its logs prove, from the tables that the rules read."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Final

from kraft_audit.findings.change_authors import AuthoredChange, author_text
from kraft_audit.quorum.divergence import BEFORE, RECORD, LostBranch, ProvenOrder, TimelineKey
from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.columns.loss_holders import losses
from kraft_audit.rules.columns.loss_texts import LABEL_TEXTS
from kraft_audit.rules.columns.partition_states import partition_states
from kraft_audit.rules.columns.voter_sets import voter_ids
from kraft_audit.tables.silver import SNAPSHOT
from kraft_audit.text.readable import and_more, cause_text, committed_text
from kraft_codec.schemas.releases import METADATA_VERSION_FEATURE, version_text

PAUSE_MS: Final = 1000
"""Partition changes of one cause that follow each other within this time are one event."""
NAMED_PARTITIONS: Final = 3
FOLDED_FROM: Final = 3
FOLDED_KINDS: Final = frozenset({"topic", "config", "feature", "controller", "partition"})
"""Many events of one of these kinds in a row are one line. Elections, voters, brokers and captures are never folded."""
PARTITION_COLUMNS: Final = (
    "from_offset",
    "from_epoch",
    "timestamp_ms",
    "cause",
    "possible_causes",
    "cause_broker_id",
    "topic",
    "partition",
)


@dataclass(frozen=True, slots=True)
class TimelineEvent:
    """What happened at an offset, and how every node stood after it.

    `nodes`, by node id as text: a controller's mark (L leads, V votes, o votes no more), then a broker's (+ in service,
    F fenced, S shutting down). `event`: leader, voters, broker, controller, feature, topic, config, partition, loss,
    branch (records that are not on the canonical log) or capture.
    """

    offset: int
    epoch: int
    timestamp_ms: int | None
    event: str
    text: str
    canonical: bool
    nodes: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Change:
    """An event before the states of all nodes are known: its marks are those of the nodes that changed, "" for gone.

    `is_line` is False for what a snapshot holds from before the log: it sets marks only. The `controllers` of a capture
    are all that it proves: they hold for its line alone, and say nothing where they are empty. `key` is its place where
    no canonical record gives it one.
    """

    offset: int
    epoch: int
    timestamp_ms: int | None
    kind: str
    text: str
    controllers: dict[int, str] = field(default_factory=dict)
    brokers: dict[int, str] = field(default_factory=dict)
    canonical: bool = True
    is_line: bool = True
    key: TimelineKey | None = None


def timeline_events(history: ClusterHistory, order: ProvenOrder) -> list[TimelineEvent]:
    """All events in the order that is proven: canonical records by offset, those of one offset as the tables have them.

    A capture stands before the records at its log's end, which it lacks, and after what a snapshot holds up to there.
    What is not canonical stands before the canonical records of later epochs.
    """
    changes = [
        *_lost_branches(order),
        *_voter_sets(history),
        *_leaders(history),
        *_brokers(history),
        *_controllers(history),
        *_features(history),
        *_topics(history),
        *_configs(history),
        *_partitions(history),
        *_losses(history),
        *_captures(history, order),
    ]
    return list(_with_nodes(sorted(changes, key=lambda change: _key(change, order))))


def with_authors(events: Iterable[TimelineEvent], changes: Iterable[AuthoredChange]) -> list[TimelineEvent]:
    """The events, each that admin requests made with whose it was."""
    words = {(each.change.kind, each.change.offset): author_text(each.author) for each in changes if each.author}
    who = ((event, words.get((event.event, event.offset))) for event in events)
    return [event if not by or not event.canonical else replace(event, text=f"{event.text}, {by}") for event, by in who]


def folded_events(events: Sequence[TimelineEvent]) -> list[TimelineEvent]:
    """Runs of more than FOLDED_FROM neighbouring events of one kind, in which no node's state changes, as one event."""
    folded = []
    for _, group in groupby(events, key=lambda event: (event.event, event.canonical, tuple(event.nodes.items()))):
        run = list(group)
        if len(run) <= FOLDED_FROM or run[0].event not in FOLDED_KINDS:
            folded += run
            continue
        last = run[-1]
        text = f"{run[0].text}; and {len(run) - 1} more {last.event} events up to offset {last.offset}"
        folded.append(replace(run[0], text=text, nodes=last.nodes))
    return folded


def _with_nodes(changes: list[_Change]) -> Iterator[TimelineEvent]:
    """Each line with the state of every node after it."""
    controllers: dict[int, str] = {}
    brokers: dict[int, str] = {}
    voters: set[int] = set()
    leader: int | None = None
    for change in changes:
        shown = controllers
        if change.kind == "capture":
            if change.controllers:
                shown = {node: change.controllers.get(node, "o") for node in {*controllers, *change.controllers}}
        elif change.canonical:
            if change.kind == "voters":
                voters = {node for node, mark in change.controllers.items() if mark == "V"}
            leaders = [node for node, mark in change.controllers.items() if mark == "L"]
            leader = leaders[0] if leaders else leader
            for node in {*controllers, *change.controllers}:
                controllers[node] = "L" if node == leader else "V" if node in voters else "o"
            brokers.update(change.brokers)
        if change.is_line:
            marks = {str(n): shown.get(n, "") + brokers.get(n, "") for n in sorted(shown.keys() | brokers.keys())}
            yield TimelineEvent(
                change.offset, change.epoch, change.timestamp_ms, change.kind, change.text, change.canonical, marks
            )


def _key(change: _Change, order: ProvenOrder) -> TimelineKey:
    if change.key is not None:
        return change.key
    if not change.canonical:
        return order.key_of_lost(change.epoch, change.offset)
    return (change.offset, RECORD if change.is_line else BEFORE, 0, 0, 0)


def _lost_branches(order: ProvenOrder) -> Iterator[_Change]:
    for branch in order.lost:
        epoch = branch.epochs[0]
        text = f"{_range(branch)}, held by {_nodes(branch.holders)}; {_parting(branch, order)}"
        key = order.key_of_lost(epoch, branch.from_offset)
        yield _Change(branch.from_offset, epoch, branch.timestamp_ms, "branch", text, canonical=False, key=key)


def _range(branch: LostBranch) -> str:
    last = branch.to_offset - 1
    offsets = f"offset {last}" if last == branch.from_offset else f"offsets {branch.from_offset} to {last}"
    return f"{offsets} of epoch{'s'[: len(branch.epochs) > 1]} {_ids(list(branch.epochs))}"


def _nodes(holders: tuple[str, ...]) -> str:
    return f"node{'s'[: len(holders) > 1]} {_ids(list(holders))}"


def _parting(branch: LostBranch, order: ProvenOrder) -> str:
    if not order.epoch_starts:
        return "no log is canonical"
    if branch.parted_at is None:
        return "the canonical log shares no record with them"
    if branch.canonical_epoch is None:
        return f"the canonical log ends at {branch.parted_at}"
    return f"the canonical log goes on at {branch.parted_at} with epoch {branch.canonical_epoch}"


def _leaders(history: ClusterHistory) -> Iterator[_Change]:
    unled: list[int] = []
    for row in sorted(history.rows("leader_epochs"), key=lambda row: int(row["epoch"])):
        if row["from_offset"] is None:
            unled.append(row["epoch"])
            continue
        leader = row["leader_id"]
        who = "an unnamed node" if leader is None else f"node {leader}"
        votes = "" if row["granting_voters"] is None else f", votes of {_ids(row['granting_voters'])}"
        skipped = f"; epoch{'s'[: len(unled) > 1]} {_ids(unled)} without a leader" if unled else ""
        marks = {} if leader is None else {leader: "L"}
        offset = row["from_offset"] if row["leader_change_offset"] is None else row["leader_change_offset"]
        text = f"{who} leads epoch {row['epoch']}{votes}{skipped}"
        canonical = row["canonical"]
        yield _Change(offset, row["epoch"], row["timestamp_ms"], "leader", text, marks, {}, canonical)
        unled = []


def _voter_sets(history: ClusterHistory) -> Iterator[_Change]:
    known: frozenset[int] = frozenset()
    for row in sorted(history.rows("voter_sets"), key=lambda row: (row["from_offset"], row["from_epoch"])):
        ids = voter_ids(row)
        gone = dict.fromkeys(known - ids, "o") if row["canonical"] else {}
        text = f"voters {_ids(sorted(ids))} ({row['source']})"
        if row["source"] == "log":
            changes = [f"+{voter['voter_id']}" for voter in row["added"]]
            changes += [f"-{voter['voter_id']}" for voter in row["removed"]]
            text = f"voters {_ids(sorted(ids))} {' '.join(changes)}".rstrip()
        if row["ended_by"] == "truncated":
            text += ", reverted"
        marks = gone | dict.fromkeys(sorted(ids), "V") if row["canonical"] else {}
        yield _Change(
            row["from_offset"], row["from_epoch"], row["timestamp_ms"], "voters", text, marks, {}, row["canonical"]
        )
        known = ids if row["canonical"] else known


def _brokers(history: ClusterHistory) -> Iterator[_Change]:
    log_dirs: dict[int, list[str]] = {}
    for row in history.rows("broker_changes"):
        before = log_dirs.get(row["broker_id"], [])
        log_dirs[row["broker_id"]] = row["log_dirs"] if row["exists"] else []
        if row["cause"] == "unchanged":
            continue
        mark = "F" if row["fenced"] else "S" if row["in_controlled_shutdown"] else "+"
        marks = {row["broker_id"]: mark if row["exists"] else ""}
        yield _event(row, "broker", f"broker {row['broker_id']} {_broker_words(row, before)}", brokers=marks)


def _controllers(history: ClusterHistory) -> Iterator[_Change]:
    for row in history.rows("controller_changes"):
        yield _event(row, "controller", f"controller {row['controller_id']} {_words(row['cause'])}")


def _features(history: ClusterHistory) -> Iterator[_Change]:
    for row in history.rows("feature_changes"):
        level = row["feature_level"]
        text = version_text(level) if row["name"] == METADATA_VERSION_FEATURE else level
        yield _event(row, "feature", f"{row['name']} level {text}")


def _topics(history: ClusterHistory) -> Iterator[_Change]:
    for row in history.rows("topic_changes"):
        yield _event(row, "topic", f"topic {row['topic']} {_words(row['cause'])}")


def _configs(history: ClusterHistory) -> Iterator[_Change]:
    for row in history.rows("config_changes"):
        what = f"{row['resource_type'].lower()} {row['resource_name'] or '(default)'}"
        value = f"= {row['value']}" if row["exists"] else "deleted"
        yield _event(row, "config", f"{what}: {row['name']} {value}")


def _partitions(history: ClusterHistory) -> Iterator[_Change]:
    """Neighbouring changes of the same cause are one event. Read by columns: there may be very many."""
    table = history.table("partition_changes").select([*PARTITION_COLUMNS, "leader"]).sort_by("from_offset")
    topics = sorted(row["from_offset"] for row in history.rows("topic_changes"))
    rows: list[dict[str, Any]] = []
    for batch in table.to_batches(max_chunksize=10_000):
        for row in batch.to_pylist():
            if rows and not (_is_alike(rows[-1], row) and _is_beside(rows[-1], row, topics)):
                yield _partition_event(rows)
                rows = []
            rows.append(row)
    if rows:
        yield _partition_event(rows)


def _is_alike(before: dict[str, Any], after: dict[str, Any]) -> bool:
    same = all(before[name] == after[name] for name in ("cause", "possible_causes", "cause_broker_id"))
    return bool(same and after["timestamp_ms"] - before["timestamp_ms"] <= PAUSE_MS)


def _is_beside(before: dict[str, Any], after: dict[str, Any], topics: list[int]) -> bool:
    """Whether no topic was created or deleted between two changes: its partitions come after it.

    A topic goes with its partitions in one record, so all of them have its offset.
    """
    return bisect_right(topics, before["from_offset"]) == bisect_right(topics, after["from_offset"])


def _partition_event(rows: list[dict[str, Any]]) -> _Change:
    subjects = list(dict.fromkeys((row["topic"], row["partition"]) for row in rows))
    named = " ".join(f"{topic}-{partition}" for topic, partition in subjects[:NAMED_PARTITIONS])
    more = and_more(len(subjects) - NAMED_PARTITIONS)
    first = rows[0]
    broker = f" (broker {first['cause_broker_id']})" if first["cause_broker_id"] is not None else ""
    leaderless = len({(row["topic"], row["partition"]) for row in rows if row["leader"] == -1})
    lost = f", {leaderless} without a leader" if leaderless else ""
    cause = _words(cause_text(first["cause"], first["possible_causes"]))
    text = f"{len(subjects)} partition{'s'[: len(subjects) > 1]} {cause}{broker}{lost}: {named}{more}"
    return _event(first, "partition", text)


def _losses(history: ClusterHistory) -> Iterator[_Change]:
    """Elections that may have lost acknowledged records, those of one leader and kind at one time together."""
    reported = [loss.event for loss in losses(history) if loss.grade.is_reported]
    for (leader, label), group in groupby(reported, key=lambda event: (event.leader_id, event.label)):
        run = list(group)
        while run:
            last = bisect_right([event.timestamp_ms for event in run], run[0].timestamp_ms + PAUSE_MS)
            together, run = run[: max(last, 1)], run[max(last, 1) :]
            names = list(dict.fromkeys(event.name for event in together))
            shown = ", ".join(names[:NAMED_PARTITIONS]) + and_more(len(names) - NAMED_PARTITIONS)
            text = f"records of {shown} may be lost: broker {leader} {LABEL_TEXTS[label]}"
            epoch = int(partition_states(history).value("from_epoch", together[0].row))
            yield _Change(together[0].offset, epoch, together[0].timestamp_ms, "loss", text)


def _captures(history: ClusterHistory, order: ProvenOrder) -> Iterator[_Change]:
    rows = sorted(history.rows("watermarks"), key=lambda row: int(row["capture_number"]))
    for _, group in groupby(rows, key=lambda row: row["capture_number"]):
        row = list(group)[-1]
        if row["canonical_end_offset"] is not None:
            name = f"capture {row['capture']}" if row["capture"] else "captured"
            end = row["canonical_end_offset"]
            text = f"{name}: log end offset {end}, {committed_text(row['low'], row['high'])}"
            view = order.captures[row["capture_number"]]
            marks = dict.fromkeys(view.voters or (), "V")
            if marks and view.leader_id >= 0:
                marks[view.leader_id] = "L"
            canonical, key = view.is_canonical, view.key
            yield _Change(end, row["canonical_epoch"], None, "capture", text, marks, {}, canonical, key=key)


def _event(row: dict[str, Any], kind: str, text: str, *, brokers: dict[int, str] | None = None) -> _Change:
    is_line = row["cause"] != SNAPSHOT
    return _Change(
        row["from_offset"], row["from_epoch"], row["timestamp_ms"], kind, text, {}, brokers or {}, is_line=is_line
    )


def _broker_words(row: Mapping[str, Any], log_dirs_before: list[str]) -> str:
    """What happened to a broker; `log_dirs_before` are the directory ids that it had online, empty where unknown."""
    if row["cause"] == "cordoned_log_dirs":
        return (
            f"cordons {_ids(row['cordoned_log_dirs'])}" if row["cordoned_log_dirs"] else "cordons no log dir any more"
        )
    gone = [id_ for id_ in log_dirs_before if id_ not in row["log_dirs"]] if row["exists"] and row["log_dirs"] else []
    new = [id_ for id_ in row["log_dirs"] if id_ not in log_dirs_before] if row["exists"] and log_dirs_before else []
    if row["cause"] == "reregistered":
        changes = [f"with {_directories(new)}"] * bool(new) + [f"without {_directories(gone)}"] * bool(gone)
        return " ".join(["reregistered", *changes])
    # A running broker reports which directories are left: those that failed are offline until it restarts (KIP-858).
    changes = [f"{_directories(gone)} offline"] * bool(gone) + [f"{_directories(new)} online"] * bool(new)
    words = [] if row["cause"] == "log_dirs" and changes else [_words(row["cause"])]
    return ", ".join([*words, *changes])


def _directories(ids: list[str]) -> str:
    return f"log dir{'s'[: len(ids) > 1]} {_ids(ids)}"


def _words(cause: str) -> str:
    return cause.replace("_", " ")


def _ids(nodes: list[int] | list[str]) -> str:
    return " ".join(map(str, nodes))
