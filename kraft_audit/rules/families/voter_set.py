"""Rules about the voter set as it stands: how many failures it tolerates, and whether its voters are what they seem."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from kraft_audit.capture.found_log import VoterKey
from kraft_audit.quorum.quorum_evidence import majority
from kraft_audit.rules.cluster_history import ClusterHistory, TableRow, newest_append_ms
from kraft_audit.rules.columns.captures import (
    capture_evidence,
    copies_in_doubt,
    is_no_evidence,
    newest_captures,
    newest_round,
    newest_watermark,
    replica_end,
    replica_name,
    rounds_in_order,
)
from kraft_audit.rules.columns.configured_voters import configured_voters
from kraft_audit.rules.columns.kafka_commands import broker_server
from kraft_audit.rules.columns.lost_records import lost_voters
from kraft_audit.rules.columns.nodes import raises_kraft_version
from kraft_audit.rules.columns.quorum_standing import BROKEN, QUORUM_TABLES, quorum_standing
from kraft_audit.rules.columns.voter_lag import lag_below
from kraft_audit.rules.columns.voter_sets import canonical_sets, current_set, keys_of, named, set_at, set_evidence
from kraft_audit.rules.registry import rule, words_for
from kraft_audit.rules.rule_model import Case, Evidence, Thresholds, case_at, threshold, undecided
from kraft_audit.text.readable import is_local
from kraft_codec.schemas import Dialect


@rule("KV007", control="quorum_safety", needs=("voter_sets",))
def kv007(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    rows = canonical_sets(history)
    if not rows:
        return
    counts = [len(row["voters"]) for row in rows]
    count = counts[-1]
    if count > 2 and count % 2:
        return
    first = len(rows) - 1
    while first and counts[first - 1] == count:
        first -= 1
    failures = count - majority(count)
    summary = f"{count} voters tolerate {failures} failure{'s' * (failures != 1)}, no more than {count - 1} do"
    if count <= 2:
        summary = ("1 voter: any disk loss is data loss", "2 voters: losing either one stops the quorum")[count - 1]
    words = words_for("KV007", "one_or_two" if count <= 2 else "even")
    if _is_static(history, rows[-1]):
        words["what_to_do"] = _dynamic_first(history)
    yield case_at(rows[first], "voters", summary, evidence=(set_evidence(rows[-1]),), **words)


def _is_static(history: ClusterHistory, voter_set: TableRow) -> bool:
    return bool(voter_set["kraft_version"] == 0 and history.dialect == "kip853")


def _dynamic_first(history: ClusterHistory) -> str:
    """What lets voters be changed at kraft.version 0: the software decides whether the feature can be raised."""
    command = f"kafka-features.sh {broker_server(history)} upgrade --feature kraft.version=1"
    then = "Then change voters one by one with kafka-metadata-quorum.sh."
    if raises_kraft_version(history):
        return f"First {command}: at kraft.version 0 no change of voters is safe. {then}"
    return (
        "Leave the voters as they are: at kraft.version 0 no change of them is safe. "
        f"Upgrade all nodes to 4.1 or later, then {command}. {then}"
    )


@rule("KV008", control="quorum_safety", needs=("captures", "voter_sets"))
def kv008(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    open_cases: dict[VoterKey, Case] = {}
    for taken, newest in rounds_in_order(history):
        end = max((replica_end(row) for row in taken), default=0)
        voter_set = set_at(history, end - 1)
        phantoms = {} if voter_set is None else _phantoms(voter_set, newest)
        for key in open_cases.keys() - phantoms.keys():
            yield open_cases.pop(key)._replace(to_ms=newest_append_ms(taken), is_over=True)
        for key, case in phantoms.items():
            open_cases.setdefault(key, case)
    yield from open_cases.values()
    current, rounds = current_set(history), rounds_in_order(history)
    if current is not None and rounds:
        yield from _unseen(current, rounds[-1].newest)


def _unseen(voter_set: TableRow, captures: list[TableRow]) -> Iterator[Case]:
    """Voters of a dynamic set of whose node no meta.properties was captured: what directory is there is open."""
    seen = {row["node_id"] for row in captures if row["directory_id"] is not None}
    for voter_id, directory_id in sorted(keys_of(voter_set["voters"]), key=str):
        if directory_id is not None and voter_id not in seen:
            reason = f"no disk of node {voter_id} was captured: its meta.properties says whether it is {directory_id}"
            where = {"from_offset": voter_set["from_offset"], "from_ms": voter_set["timestamp_ms"]}
            yield undecided(f"voter {voter_id}", reason, **where)


def _phantoms(voter_set: TableRow, captures: list[TableRow]) -> dict[VoterKey, Case]:
    """Cases about voters whose node was captured, and has another directory."""
    cases: dict[VoterKey, Case] = {}
    of_node = defaultdict(list)
    for row in captures:
        if row["directory_id"] is not None:
            of_node[row["node_id"]].append(row)
    for voter_id, directory_id in sorted(keys_of(voter_set["voters"]), key=str):
        mine = of_node.get(voter_id, ())
        if directory_id is None or not mine or any(row["directory_id"] == directory_id for row in mine):
            continue
        its_directory = mine[0]["directory_id"]
        text = f"meta.properties of node {voter_id} names another directory"
        change = {"file_name": "meta.properties", "before": directory_id, "after": its_directory}
        cases[voter_id, directory_id] = case_at(
            voter_set,
            f"voter {voter_id}",
            f"voter {voter_id} is {directory_id}, but node {voter_id}'s disk is {its_directory}",
            evidence=(set_evidence(voter_set), capture_evidence(mine[0], text, **change)),
        )._replace(key=f"voter {voter_id} {directory_id}")  # not the directory that a later set has
    return cases


@rule("KV009", control="quorum_safety", needs=("voter_sets", "controller_changes"))
def kv009(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    voter_set = current_set(history)
    if voter_set is None:
        return
    registered = {
        controller: {point["name"]: f"{point['host']}:{point['port']}" for point in row["end_points"] if row["exists"]}
        for controller, row in history.newest_rows("controller_changes", "controller_id").items()
    }
    hosts = {endpoint["host"] for voter in voter_set["voters"] for endpoint in voter["endpoints"]}
    for voter in voter_set["voters"]:
        subject = f"voter {voter['voter_id']}"
        for endpoint in voter["endpoints"]:
            mine = f"{endpoint['host']}:{endpoint['port']}"
            theirs = registered.get(voter["voter_id"], {}).get(endpoint["name"], mine)
            if theirs != mine:
                text = f"listener {endpoint['name']}"
                fact = Evidence(text, offset=voter_set["from_offset"], before=theirs, after=mine)
                summary = f"the voter set says {mine}, the registration {theirs}"
                yield case_at(voter_set, subject, summary, evidence=(fact,), key=f"{subject} {endpoint['name']}")
            elif len(hosts) > 1 and is_local(endpoint["host"]):
                summary = f"{endpoint['host']} cannot be reached from the other voters' hosts"
                fact = set_evidence(voter_set)
                yield case_at(voter_set, subject, summary, evidence=(fact,), key=f"{subject} {endpoint['name']}")


@rule("KV011", control="quorum_safety", needs=("voter_sets",))
def kv011(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    voter_set = current_set(history)
    if voter_set is not None and _is_static(history, voter_set):
        summary = "kraft.version 0: voters come from each node's own file, and no change of them is safe"
        fact, advice = set_evidence(voter_set), _dynamic_first(history)
        yield Case("voters", summary, voter_set["from_offset"], evidence=(fact,), what_to_do=advice)


@dataclass(frozen=True, slots=True)
class VoterLagLimits(Thresholds):
    max_lag_records: int = threshold(1_000, "how far a voter's log may end behind what is committed")
    max_lag_seconds: float = threshold(5, "the same in time of the log, at most 2 s from batch to batch")


@rule(
    "KV013",
    control="quorum_safety",
    needs=("captures", "voter_sets", "watermarks", "batches", "leader_epochs"),
    thresholds=VoterLagLimits,
)
def kv013(history: ClusterHistory, limits: VoterLagLimits) -> Iterator[Case]:
    newest, voter_set = newest_watermark(history), current_set(history)
    if newest is None or voter_set is None:
        return
    by_key = _captured_voters(history, voter_set)
    keys = sorted(keys_of(voter_set["voters"]), key=str)
    counts = Counter(voter_id for voter_id, _ in keys)
    for voter_id, directory_id in keys:
        row = by_key.get((voter_id, directory_id))
        # KIP-856 lets two voters share an id while one takes the other's place.
        subject = f"voter {voter_id}" if counts[voter_id] == 1 else f"voter {voter_id} (directory {directory_id})"
        if row is None:
            yield undecided(subject, f"the log of {subject} was not captured, or could not be read")
            continue
        if _wrote_the_last(history, row, newest):
            continue
        records, seconds = lag_below(history, row, newest["low"])
        if records > limits.max_lag_records or seconds > limits.max_lag_seconds:
            end = replica_end(row)
            fact = capture_evidence(row, f"log end {row['log_end_offset']}", offset=row["log_end_offset"])
            behind = f"{records} records and {seconds:.1f} s behind what is committed ({newest['low']})"
            yield Case(subject, f"ends at {end}, {behind}", end, from_ms=row["last_timestamp_ms"], evidence=(fact,))


def _wrote_the_last(history: ClusterHistory, row: TableRow, newest: TableRow) -> bool:
    """Whether a voter led the epoch of the last committed record: it holds what its followers hold, whatever its copy,
    which is older then, lacks. Not if its disk is known to have lost it (KQ020)."""
    epoch = newest["low_epoch"]
    leaders = {led["leader_id"] for led in history.rows("leader_epochs") if led["canonical"] and led["epoch"] == epoch}
    return row["node_id"] in leaders and row["node_id"] not in {lost.node_id for lost in lost_voters(history).proven}


def _captured_voters(history: ClusterHistory, voter_set: TableRow) -> dict[VoterKey, TableRow]:
    """The newest capture of each voter whose log was read: by id and directory, by id alone where either is unknown."""
    directories = defaultdict(list)
    for voter_id, directory_id in keys_of(voter_set["voters"]):
        directories[voter_id].append(directory_id)
    return {
        (row["node_id"], directory_id): row
        for row in newest_captures(history)
        for directory_id in directories.get(row["node_id"], ())
        if directory_id is None or row["directory_id"] in (None, directory_id)
        if not is_no_evidence(row)
    }


@dataclass(frozen=True, slots=True)
class NearVoterLimits(Thresholds):
    max_lag_records: int = threshold(1_000, "a voter within this many records of the committed end counts")
    max_lag_seconds: float = threshold(5, "and within this time of the log, at most 2 s from batch to batch")


@rule("KV014", control="quorum_safety", needs=QUORUM_TABLES, thresholds=NearVoterLimits)
def kv014(history: ClusterHistory, limits: NearVoterLimits) -> Iterator[Case]:
    newest, voter_set = newest_watermark(history), current_set(history)
    if newest is None or voter_set is None or len(voter_set["voters"]) < 3:
        return
    if quorum_standing(history).standing in BROKEN:
        return  # it has stopped already: KQ023 to KQ025 say so
    if (doubt := copies_in_doubt(history)) is not None:
        yield undecided("voters", doubt)
        return
    by_key = _captured_voters(history, voter_set)
    missing = sorted(id_ for id_, _ in keys_of(voter_set["voters"]) - by_key.keys())
    if missing:
        yield undecided("voters", f"the logs of voters {missing} were not captured, or could not be read")
        return
    lags = {key: lag_below(history, row, newest["low"]) for key, row in by_key.items()}
    close = {
        key
        for key, (records, seconds) in lags.items()
        if (records <= limits.max_lag_records and seconds <= limits.max_lag_seconds)
        or _wrote_the_last(history, by_key[key], newest)
    }
    if len(close) == majority(len(by_key)):
        ends = {key: replica_end(row) for key, row in by_key.items()}
        yield Case(
            "voters",
            f"only {named(close)} of {named(set(by_key))} are near the committed end {newest['low']}: "
            "one more failure stops the quorum",
            from_offset=min(end for key, end in ends.items() if key not in close),
            evidence=tuple(
                capture_evidence(row, f"{replica_name(row)} ends at {ends[key]}", offset=ends[key])
                for key, row in by_key.items()
            ),
        )


@rule(
    "KV017",
    control="quorum_safety",
    needs=("captures", "voter_sets", "broker_changes", "controller_changes"),
    dialects=(Dialect.KIP853,),
)
def kv017(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    """At kraft.version 0 each node goes by its own configuration: quorum-state repeats what it read."""
    voter_set = current_set(history)
    if voter_set is not None and voter_set["kraft_version"]:
        return
    configured = configured_voters(history)
    if not configured.are_different and not configured.emptied:
        return
    row_of = {row["node_id"]: row for row in newest_round(history)}
    facts = [
        capture_evidence(row_of[node], f"currentVoters {sorted(ids)}", file_name="quorum-state")
        for node, ids in sorted(configured.named.items())
        if node not in configured.unread
    ]
    facts += [
        capture_evidence(row_of[node], f"controller.quorum.voters {sorted(ids)}", file_name=file)
        for node, (file, ids) in sorted(configured.files.items())
    ]
    yield Case("voters", f"{configured.sets_text}: {configured.who_elects_text}", evidence=tuple(facts))
