"""Rules about the files of a log dir: damage, gaps, foreign disks, unknown records, snapshots and their age.

Which other voters hold the records of a gap decides what to do with such a disk, and how a disk is replaced on this
quorum.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kraft_audit.capture.altered_batches import AlteredBatches
from kraft_audit.capture.borne_snapshots import UNBORNE
from kraft_audit.capture.continuity import is_repeated
from kraft_audit.capture.path_plans import leaves_unread
from kraft_audit.capture.plan import identity_of
from kraft_audit.quorum.quorum_evidence import majority
from kraft_audit.rules.cluster_history import ClusterHistory, TableRow
from kraft_audit.rules.columns.altered_runs import (
    VersionCause,
    cause_of,
    decided_version,
    named_replica,
    named_replicas,
)
from kraft_audit.rules.columns.captures import (
    audit_command,
    capture_evidence,
    captures_in_order,
    is_emptied,
    is_log_unread,
    newest_captures,
    newest_watermark,
    replica_end,
    replica_name,
)
from kraft_audit.rules.columns.epoch_checkpoints import epoch_mismatches
from kraft_audit.rules.columns.kafka_commands import add_controller, controller_server, format_disk, remove_controller
from kraft_audit.rules.columns.log_batches import canonical_log
from kraft_audit.rules.columns.rivals import CAUSES_OF_VERSIONS
from kraft_audit.rules.columns.set_aside_runs import set_aside_cases
from kraft_audit.rules.columns.shorter_logs import shorter_logs
from kraft_audit.rules.columns.voter_sets import current_set, set_at, voter_ids
from kraft_audit.rules.registry import rule, texts, words_for
from kraft_audit.rules.rule_model import Case, Evidence, Thresholds
from kraft_audit.text.readable import capitalized, nouns, offset_span
from kraft_codec.errors import DECOMPRESSES_ALL, READS_AS_VERSION_2, STOPS_AT_REPLAY, Reason
from kraft_codec.file_names import printable
from kraft_codec.files.logdir import MISSING_FILES
from kraft_codec.schemas.releases import LINE_OF_LEVEL, METADATA_VERSION_FEATURE, METADATA_VERSIONS

HOLDS_OTHER_BYTES: Final = "holds other bytes"
"""How KQ022 begins where a majority says which disk was altered."""
TAILS: Final = {Reason.TORN_TAIL, Reason.ZERO_TAIL}
UNKNOWN: Final = {
    Reason.UNKNOWN_FRAME_VERSION,
    Reason.UNKNOWN_RECORD_TYPE,
    Reason.UNKNOWN_RECORD_VERSION,
    Reason.UNKNOWN_CONTROL_TYPE,
}
CORRUPT: Final = {
    Reason.BAD_LENGTH,
    Reason.BAD_MAGIC,
    Reason.BAD_CRC,
    Reason.BAD_VARINT,
    Reason.BAD_RECORD,
    Reason.BAD_STRING,
    Reason.BAD_COMPRESSION,
    Reason.DECOMP_LIMIT,
}
OF_A_RECORD: Final = {Reason.BAD_VARINT, Reason.BAD_RECORD, Reason.BAD_STRING}
"""What is wrong inside a batch whose CRC is right."""
SNAPSHOT_DAMAGE: Final = {Reason.SNAPSHOT_INCOMPLETE, *CORRUPT, *TAILS}
_KEPT_BY_KAFKA: Final = {
    f"Kafka {READS_AS_VERSION_2}": "read_by_kafka",
    f"Kafka {DECOMPRESSES_ALL}": "read_by_kafka",
    f"Kafka {STOPS_AT_REPLAY}": "stops_kafka",
}
"""Kafka's verdicts on a batch at which it does not cut the log, with the words for each."""


def damage_evidence(row: TableRow) -> Evidence:
    return Evidence(
        f"{row['reason']}: {row['detail']}; {row['kafka_verdict']}",
        offset=row["base_offset"],
        node_id=row["node_id"],
        path=row["path"] or row["root"],
        file_name=row["file_name"],
        position=row["position"],
    )


def damage_case(row: TableRow, summary: str, *, alike: Sequence[TableRow] = (), **more: Any) -> Case:
    """A case about one row of `decode_errors`, and the rows `alike`: the same damage in other replicas."""
    facts = tuple(map(damage_evidence, (row, *alike)))
    name = f"node {row['node_id']}" if row["node_id"] is not None else row["path"] or row["root"]
    place = f"{name} {row['file_name'] or ''}".strip()
    more["directory_id"] = row["directory_id"] or ""
    return Case(f"{place} at byte {row['position']}", summary, from_offset=row["base_offset"], evidence=facts, **more)


def is_snapshot_file(row: TableRow) -> bool:
    return (row["file_name"] or "").endswith(".checkpoint")


def damage_rows(history: ClusterHistory, reasons: set[Reason]) -> Iterator[TableRow]:
    return (row for row in history.rows("decode_errors") if row["reason"] in reasons)


@rule("KQ008", control="log_integrity", needs=("captures", "batches", "decode_errors"))
def kq008(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    for row in history.rows("decode_errors"):
        if row["file_name"] is None and leaves_unread(row["reason"], row["detail"]):
            reason = f"{row['detail']}: what was not read there may be damaged, and whole replicas may be missing"
            yield damage_case(row, reason, undecided=reason)
    captures = {(row["root"], row["path"]): row for row in history.rows("captures")}
    for row in damage_rows(history, CORRUPT):
        if is_snapshot_file(row):
            continue
        summary = f"{row['reason']} in {row['length_bytes']} bytes"
        if row["reason"] in OF_A_RECORD and _is_of_unreleased_build(history, row["base_offset"]):
            yield damage_case(
                row, f"{summary}; may be written by an unreleased build", **words_for("KQ008", "unreleased")
            )
        elif (words := _KEPT_BY_KAFKA.get(row["kafka_verdict"])) is not None:
            yield damage_case(row, summary, **words_for("KQ008", words))
        else:
            yield damage_case(row, summary + _cut_by_kafka(captures.get((row["root"], row["path"]))))


def _is_of_unreleased_build(history: ClusterHistory, offset: int | None) -> bool:
    """Whether metadata.version, where the record stands, was one between two releases."""
    levels = [
        row["feature_level"]
        for row in history.rows_by_offset("feature_changes")
        if row["name"] == METADATA_VERSION_FEATURE and (offset is None or row["from_offset"] <= offset)
    ]
    return bool(levels) and levels[-1] not in LINE_OF_LEVEL and levels[-1] in METADATA_VERSIONS


def _cut_by_kafka(capture: TableRow | None) -> str:
    """Where Kafka would cut a log when it starts, and how many records it would lose."""
    if capture is None or capture["reachable_end_offset"] is None or capture["log_end_offset"] is None:
        return ""
    end = capture["reachable_end_offset"]
    count = capture["log_end_offset"] - end
    return f"; Kafka would cut the log at {end}, and lose {count} records after it" if count > 0 else ""


@rule("KQ009", control="log_integrity", needs=("decode_errors",))
def kq009(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    for row in damage_rows(history, TAILS):
        if not is_snapshot_file(row):
            yield damage_case(row, f"{row['length_bytes']} bytes after the last whole batch: {row['detail']}")


@rule("KQ010", control="log_integrity", needs=("captures", "decode_errors"))
def kq010(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    cases: dict[str, Case] = {}
    for row in history.rows("captures"):
        its_cluster = row["meta_cluster_id"]
        is_other_cluster = its_cluster is not None and history.cluster_id and its_cluster != history.cluster_id
        if is_other_cluster or not row["accepted"]:
            where = row["path"] or row["root"]
            ids = {"before": history.cluster_id, "after": its_cluster}
            fact = capture_evidence(row, "meta.properties", file_name="meta.properties", **ids)
            others = f", the others to cluster {history.cluster_id}" if is_other_cluster else ""
            summary = f"{replica_name(row)} belongs to cluster {its_cluster}{others}"
            cases.setdefault(where, Case(f"replica at {where}", summary, evidence=(fact,)))
    for row in damage_rows(history, {Reason.CLUSTER_MISMATCH}):
        where = row["path"] or row["root"]
        case = cases.get(where, Case(f"replica at {where}", row["detail"]))
        cases[where] = case._replace(evidence=(*case.evidence, damage_evidence(row)))
    yield from cases.values()


@rule("KQ013", control="log_integrity", needs=("captures", "batches", "decode_errors"))
def kq013(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    mismatches, shorter_ones = epoch_mismatches(history), shorter_logs(history)
    for mismatch in mismatches:
        in_log, in_file = (
            " ".join(f"{epoch}@{offset}" for epoch, offset in sorted(epochs.items()))
            for epochs in (mismatch.held, mismatch.listed)
        )
        change = {"file_name": "leader-epoch-checkpoint", "before": in_log, "after": in_file}
        yield Case(
            replica_name(mismatch.row),
            f"leader-epoch-checkpoint says {in_file}, the log {in_log}",
            from_offset=mismatch.from_offset,
            evidence=(capture_evidence(mismatch.row, "log → checkpoint", **change),),
        )
    differing = [mismatch.row for mismatch in mismatches]
    for shorter in shorter_ones:
        if any(row is shorter.row for row in differing):
            continue
        reached, end = shorter.reached, f"log end offset {shorter.end_offset}"
        after = f"{reached.offset}" if reached.epoch is None else f"{reached.epoch}@{reached.offset}"
        fact = capture_evidence(shorter.row, f"log → {reached.file}", file_name=reached.file, before=end, after=after)
        yield Case(
            replica_name(shorter.row),
            f"the log ends at offset {shorter.end_offset}, and {reached.text()}: it is shorter than it was",
            from_offset=shorter.end_offset,
            evidence=(fact,),
            **words_for("KQ013", "shorter"),
        )
    named = [*differing, *(shorter.row for shorter in shorter_ones)]
    for row in newest_captures(history):
        is_said = any(each is row for each in named)
        if row["doubt"] is not None and row["log_end_offset"] is not None and not is_said and not is_emptied(row):
            if row["doubt"].endswith(UNBORNE):
                fact, words = capture_evidence(row, row["doubt"]), words_for("KQ013", "snapshot_alone")
                yield Case(replica_name(row), row["doubt"], evidence=(fact,), **words)
                continue
            fact = capture_evidence(row, row["doubt"], file_name="leader-epoch-checkpoint")
            yield Case(replica_name(row), f"its log is shorter than it was: {row['doubt']}", evidence=(fact,))
    # A later copy that was read answers for an earlier one that was torn.
    newest = {identity_of(row): row for row in captures_in_order(history)}
    unread = {(row["root"], row["path"]): row for row in newest.values() if is_log_unread(row)}
    for row in damage_rows(history, {Reason.EPOCH_WENT_BACK}):
        capture = unread.get((row["root"], row["path"]))
        if capture is not None and (row["file_name"] or "").endswith("leader-epoch-checkpoint"):
            name = replica_name(capture)
            summary = f"the copy of {name} may be torn, so its log is not used: {row['detail']}"
            yield Case(name, summary, evidence=(damage_evidence(row),))


@rule("KQ017", control="log_integrity", needs=("records", "watermarks"))
def kq017(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    newest = newest_watermark(history)
    end = newest["low"] if newest is not None and newest["low"] else canonical_log(history).end_offset
    marks = (row for row in history.rows("records") if row["source"] == "log" and row["offset"] < end)
    marks = (row for row in marks if row["record_type"].endswith("TRANSACTION_RECORD"))
    last = max(marks, key=lambda row: (row["offset"], row["leader_epoch"]), default=None)
    if last is not None and last["record_type"].startswith("BEGIN"):
        name = json.loads(last["record"] or "{}").get("name")
        offset, time_ms = last["offset"], last["timestamp_ms"]
        yield Case(
            "metadata transaction",
            f"begun at offset {offset} ({name}), neither ended nor aborted by {end}",
            from_offset=offset,
            from_ms=time_ms,
            epoch=last["leader_epoch"],
            evidence=(Evidence("BeginTransactionRecord", offset=offset, timestamp_ms=time_ms),),
        )


@rule("KQ018", control="log_integrity", needs=("decode_errors",))
def kq018(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    by_record: dict[tuple[str, int | None], list[TableRow]] = {}
    for row in damage_rows(history, UNKNOWN):
        by_record.setdefault((row["detail"], row["base_offset"]), []).append(row)
    for first, *alike in by_record.values():
        yield damage_case(first, first["detail"], alike=alike)


@rule("KQ022", control="log_integrity", needs=("altered", "voter_sets"))
def kq022(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    yield from set_aside_cases(history, is_version=True)
    for run in history.altered or ():
        voters = set_at(history, run.from_offset)
        taken = decided_version(run, voters)
        where = offset_span(run.from_offset, run.to_offset)
        agreement = _agreement(run)
        at: dict[str, Any] = {"from_offset": run.from_offset, "epoch": run.epoch, "evidence": tuple(_versions(run))}
        if taken is not None:
            voting = voter_ids(voters) | voter_ids(current_set(history))
            for replica in (replica for held in run.versions if held is not taken for replica in held):
                text = f"{HOLDS_OTHER_BYTES} at {where} (epoch {run.epoch}, valid CRC) than {named_replicas(taken)}"
                cause = cause_of(history, run, replica)
                words = _words_of(cause)
                if cause is not VersionCause.OUTVOTED and replica.node_id not in voting:
                    words |= words_for("KQ022", "observer")
                elif cause is VersionCause.ALTERED and replica.node_id is not None:
                    ask = audit_command(history, "may-i", "format", replica.node_id)
                    words = {"what_to_do": f"{texts()['KQ022']['what_to_do']} Ask before:   {ask}"}
                yield Case(named_replica(replica), f"{text}; {agreement}", **at, **_with_rivals(words, cause))
            continue
        sides = " and ".join(map(named_replicas, run.versions))
        count = "unknown voters" if voters is None else f"the {len(voters['voters'])} voters"
        cause = cause_of(history, run, run.versions[1][0])
        yield Case(
            named_replica(run.versions[1][0]),
            f"{sides} hold different bytes at {where} (epoch {run.epoch}, valid CRCs), {agreement}; "
            f"no version is held by a majority of {count}, so that disks alone do not say which is the log",
            **at,
            **_with_rivals(words_for("KQ022", _OPEN_WORDS.get(cause, "undecided_led_twice")), cause),
        )


_OPEN_WORDS: Final = {VersionCause.ALTERED: "undecided", VersionCause.UNCLEAR: "undecided_unclear"}
"""The words where no majority holds a version, by cause."""


def _agreement(run: AlteredBatches) -> str:
    if run.from_offset == 0:
        return "after it they agree" if run.rejoins else "no batch is common to them"
    return "before and after they agree" if run.rejoins else "before it they agree"


def _words_of(cause: VersionCause) -> dict[str, Any]:
    """The rule's own words are about bytes that were changed on a disk."""
    return {} if cause is VersionCause.ALTERED else words_for("KQ022", cause.value)


def _with_rivals(words: dict[str, Any], cause: VersionCause) -> dict[str, Any]:
    """The words with the situations that leave such versions, and what decides."""
    return {**words, "why": f"{words.get('why', texts()['KQ022']['why'])} {CAUSES_OF_VERSIONS[cause].text}"}


def _versions(run: AlteredBatches) -> Iterator[Evidence]:
    for number, held in enumerate(run.versions):
        text = "the version that is taken for the log" if number == 0 and not run.is_tied else "another version"
        for replica in held:
            path = printable(replica.path)
            yield Evidence(text, offset=run.from_offset, epoch=run.epoch, node_id=replica.node_id, path=path)


GAPS: Final = {Reason.GAP, Reason.OVERLAP, Reason.SNAPSHOT_MISSING}
_FILE_NAME: Final = re.compile(r"[0-9]{20}\.log")


@rule("KQ007", control="log_integrity", needs=("captures", "batches", "decode_errors"))
def kq007(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    captures = {(row["root"], row["path"]): row for row in captures_in_order(history)}
    for row in damage_rows(history, GAPS):
        if is_repeated(row["reason"], row["detail"]):
            yield damage_case(row, row["detail"], **words_for("KQ007", "repeated"))
            continue
        capture = captures.get((row["root"], row["path"]))
        advice: dict[str, Any] = {} if capture is None else {"what_to_do": _advice(history, row, capture)}
        yield damage_case(row, row["detail"], **advice)


def _advice(history: ClusterHistory, row: TableRow, capture: TableRow) -> str:
    """By the other voters that hold what is missing: all before the log's start, or before the batch after the gap."""
    to_offset = capture["log_start_offset"] if row["reason"] == Reason.SNAPSHOT_MISSING else row["base_offset"]
    others = other_voters(history, capture["node_id"], int(to_offset or 0))
    _, _, named = row["detail"].partition(MISSING_FILES)
    file = _FILE_NAME.search(named)
    return advice_for_lost_records(history, capture, others, None if file is None else file.group())


@dataclass(frozen=True, slots=True)
class OtherVoters:
    """The voters but for one node: `holders` surely hold some records, `unknown` were not captured."""

    count: int
    holders: tuple[int, ...]
    unknown: tuple[int, ...]
    is_majority: bool


def other_voters(history: ClusterHistory, node_id: int | None, to_offset: int) -> OtherVoters:
    """Which other voters hold everything before an offset; disks with a gap of their own do not count."""
    ids = voter_ids(current_set(history))
    damaged = {(row["root"], row["path"]) for row in history.rows("decode_errors") if row["reason"] in _UNSURE}
    captured = {row["node_id"]: row for row in newest_captures(history) if row["node_id"] in ids - {node_id}}
    holders = tuple(
        sorted(id_ for id_, row in captured.items() if replica_end(row) >= to_offset and _place(row) not in damaged)
    )
    unknown = tuple(sorted(ids - captured.keys() - {node_id}))
    return OtherVoters(len(ids - {node_id}), holders, unknown, bool(ids) and len(holders) >= majority(len(ids)))


_UNSURE = frozenset({"GAP", "SNAPSHOT_MISSING", "BAD_CRC", "BAD_LENGTH", "BAD_MAGIC", "UNREADABLE"})


def _place(row: TableRow) -> tuple[str, str]:
    return row["root"], row["path"]


def advice_for_lost_records(history: ClusterHistory, row: TableRow, others: OtherVoters, file: str | None) -> str:
    """What to do with a disk that lacks records which it should have, by the number of others that hold them."""
    wanted = f"find {file}" if file else "find the missing segment or snapshot"
    search = f"{capitalized(wanted)} (a backup, another copy of this folder)"
    if others.is_majority:
        held = f"{nouns('Node', others.holders)} hold these records"
        return f"{held}. Keep a copy of this disk, then replace it. {replacement(history, row)}"
    if others.holders:
        hold = "hold" if len(others.holders) > 1 else "holds"
        held = f"Of the other voters only {nouns('node', others.holders)} surely {hold} these records"
        return f"{held}: copy that disk before anything else, and wipe neither. {search}."
    if others.unknown:
        return (
            f"Copy {nouns('voter', others.unknown)} too and check again: their disks may hold these records. Wipe none."
        )
    return f"No other voter holds these records: do not wipe or replace this disk. {search} and put it back."


def replacement(history: ClusterHistory, row: TableRow) -> str:
    """How a voter's disk is replaced: KIP-853's tool from kraft.version 1 on, else by formatting it again."""
    voter_set, node_id = current_set(history), row["node_id"]
    format_it = format_disk(history.cluster_id, joins=False)
    if voter_set is None or node_id not in voter_ids(voter_set):
        return f"Stop the node and empty its metadata folder, then: {format_it}; start it: it fetches the log."
    if voter_set["kraft_version"] < 1:
        return f"Stop node {node_id}; on an empty disk: {format_it}; start it while the others run: it fetches the log."
    server = controller_server(history, sorted(voter_ids(voter_set) - {node_id}))
    directory = next(voter["directory_id"] for voter in voter_set["voters"] if voter["voter_id"] == node_id)
    return (
        f"Stop node {node_id}, then: {remove_controller(server, node_id, directory)}; "
        f"on an empty disk: {format_disk(history.cluster_id, joins=True)}; "
        f"start it; once it has fetched the log: {add_controller(server)}"
    )
