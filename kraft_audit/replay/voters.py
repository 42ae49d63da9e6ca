"""The history of the voter set: applied when appended, reverted when truncated, persisted in snapshots.

`VoterSetHistory`, `KRaftControlRecordStateMachine` (Kafka 4.3.0, KIP-853) for `kip853`; the proposals' texts for the
two dialects that never shipped. A history is that of one branch: a truncated change is one that only another one has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Final

from kraft_audit.replay.records import ControlRecord
from kraft_codec.schemas import ZERO_UUID, Dialect
from kraft_codec.uuids import uuid_text

BOOTSTRAP_OFFSET: Final = -1
"""Kafka files the records of the 0-0 checkpoint, and so the first voters, under offset -1."""
WHOLE_SETS: Final = frozenset({"KRAFT_VOTERS", "VOTER_ASSIGNMENT"})
"""Records that bring a whole voter set: two of them in a row are two changes."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Voter:
    """A voter; `directory_id` is None where the set does not know it (static quorum): it then matches by id alone."""

    voter_id: int
    directory_id: str | None = None
    endpoints: tuple[Endpoint, ...] = ()
    min_supported_version: int = 0
    max_supported_version: int = 0

    @property
    def key(self) -> tuple[int, str | None]:
        return self.voter_id, self.directory_id


@dataclass(frozen=True, slots=True)
class VoterSet:
    """A voter set, in effect from `from_offset` on; `source` is static, bootstrap, snapshot or log."""

    from_offset: int
    from_epoch: int
    timestamp_ms: int | None
    source: str
    kraft_version: int
    voters: tuple[Voter, ...]
    target_voters: tuple[int, ...] | None = None

    @property
    def ids(self) -> frozenset[int]:
        return frozenset(voter.voter_id for voter in self.voters)

    @property
    def is_static(self) -> bool:
        """No change of this set can go unseen: it is configured, and kraft.version 0 knows no other."""
        return self.source == "static" and self.kraft_version == 0

    def holds(self, node_id: int, directory_id: str | None) -> bool:
        """Whether that replica is a voter of this set: by id and directory, by id alone where either is not known."""
        return any(
            voter.voter_id == node_id and (voter.directory_id is None or directory_id in (None, voter.directory_id))
            for voter in self.voters
        )

    def is_disk_of(self, voter: Voter, directory_id: str | None) -> bool:
        """Whether a disk of that voter's id can only be its own: while two disks of one id vote, a nameless is none's.

        A nameless voter (static quorum) is any disk of its id.
        """
        if voter.directory_id is None or directory_id == voter.directory_id:
            return True
        return directory_id is None and sum(one.voter_id == voter.voter_id for one in self.voters) == 1


def voter_history(
    records: Iterable[ControlRecord],
    *,
    dialect: Dialect = Dialect.KIP853,
    static_voters: Sequence[int] = (),
    before: VoterSet | None = None,
) -> list[VoterSet]:
    """The voter sets of one branch in the order in which they came into effect.

    `records`: the branch's control records in log order. `before` is the set in effect where they begin (from
    `checkpoint_voters`, or an earlier part of the history); without it the static set of ids, where there is one.
    """
    current = before
    history: list[VoterSet] = []
    if current is None and static_voters:
        voters = tuple(Voter(voter_id) for voter_id in sorted(static_voters))
        # The drafts begin with a configured set too, but theirs can change.
        version = 0 if dialect is Dialect.KIP853 else 1
        current = VoterSet(BOOTSTRAP_OFFSET, 0, None, "static", version, voters)
    if current is not None:
        history.append(current)
    relevant = (record for record in records if record.name in _APPLY[dialect])
    for _, batch in groupby(relevant, key=_batches()):
        earlier, current = current, _after(current, batch, dialect)
        if current is not None and current.voters and (earlier is None or _content(earlier) != _content(current)):
            history.append(current)
    return history


def checkpoint_voters(
    records: Iterable[ControlRecord], end_offset: int, epoch: int, *, dialect: Dialect = Dialect.KIP853
) -> VoterSet | None:
    """The voter set that a snapshot persists, at the snapshot's last offset; None where it persists none."""
    current: VoterSet | None = None
    timestamp_ms = None
    for record in records:
        if record.name == "SNAPSHOT_HEADER":
            timestamp_ms = record.fields["last_contained_log_timestamp"]
        current = _after(current, [record], dialect)
    if current is None or not current.voters:
        return None
    source = "snapshot" if end_offset else "bootstrap"
    return replace(
        current, from_offset=end_offset - 1, from_epoch=epoch, source=source, timestamp_ms=timestamp_ms or None
    )


def bootstrapped(records: Sequence[ControlRecord]) -> VoterSet | None:
    """The set of a bootstrap checkpoint that is gone, from the batch at offset 0; None for a configured quorum.

    `records`: a log's control records from offset 0 on. Its first leader wrote the checkpoint's set beside its
    LeaderChange, its own endpoints and versions brought up to date (LeaderState.appendStartOfEpochControlRecords
    4.3.0). Without the directories that it tells, whatever disk bears a first voter's id today would be taken for that
    voter's.
    """
    if not records or records[0].offset != 0:
        return None
    _, first = next(groupby(records, key=_batches()))
    told = _after(None, first, Dialect.KIP853)
    if told is None or not told.voters:
        return None
    return replace(told, from_offset=BOOTSTRAP_OFFSET, from_epoch=0, timestamp_ms=None, source="bootstrap")


def voters_before(
    after: VoterSet, records: Sequence[ControlRecord], *, dialect: Dialect = Dialect.KIP853
) -> VoterSet | None:
    """The set in front of the records that led to `after`; None where one of them hides it by bringing a whole set.

    KIP-856's records say what changed, and so can be undone: an id's first record leaves the configured id alone.
    """
    current = after
    for record in reversed([record for record in records if record.name in _APPLY[dialect]]):
        undo = _UNDO.get(record.name)
        if undo is None:
            return None
        current = undo(current, record.fields)
    return current


def in_effect(history: Sequence[VoterSet], offset: int) -> VoterSet | None:
    """The set in effect once the record at `offset` was appended."""
    found = None
    for voter_set in history:
        if voter_set.from_offset > offset:
            break
        found = voter_set
    return found


def added(before: VoterSet | None, after: VoterSet) -> list[Voter]:
    """Voters of `after` that `before` lacks; compared by id alone where either side has no directory id."""
    return _difference(after, before)


def removed(before: VoterSet | None, after: VoterSet) -> list[Voter]:
    """Voters of `before` that `after` lacks."""
    return _difference(before, after)


def _difference(left: VoterSet | None, right: VoterSet | None) -> list[Voter]:
    if left is None:
        return []
    if right is None:
        return list(left.voters)
    return [voter for voter in left.voters if not right.holds(voter.voter_id, voter.directory_id)]


def voter_set_rows(history: Sequence[VoterSet], *, canonical_to: int | None = None) -> list[dict[str, Any]]:
    """Rows of `voter_sets` for one branch; `canonical_to` is where it leaves the canonical log, None for never."""
    rows = []
    for index, voter_set in enumerate(history):
        before = history[index - 1] if index else None
        canonical = canonical_to is None or voter_set.from_offset < canonical_to
        last = index + 1 == len(history) or (
            canonical and canonical_to is not None and history[index + 1].from_offset >= canonical_to
        )
        ended_by = "truncated" if not canonical else "in_effect" if last else "superseded"
        rows.append(
            {
                "from_offset": voter_set.from_offset,
                "from_epoch": voter_set.from_epoch,
                "timestamp_ms": voter_set.timestamp_ms,
                "source": voter_set.source,
                "kraft_version": voter_set.kraft_version,
                "voters": [_voter_row(voter) for voter in voter_set.voters],
                "added": [_key_row(voter) for voter in added(before, voter_set)],
                "removed": [_key_row(voter) for voter in removed(before, voter_set)],
                "endpoints_changed": _endpoints_changed(before, voter_set),
                "target_voters": None if voter_set.target_voters is None else list(voter_set.target_voters),
                "canonical": canonical,
                "ended_by": ended_by,
            }
        )
    return rows


def _content(voter_set: VoterSet) -> tuple[Any, ...]:
    return voter_set.kraft_version, voter_set.voters, voter_set.target_voters


def _voter_row(voter: Voter) -> dict[str, Any]:
    return {
        "voter_id": voter.voter_id,
        "directory_id": voter.directory_id,
        "endpoints": [{"name": e.name, "host": e.host, "port": e.port} for e in voter.endpoints],
        "min_supported_version": voter.min_supported_version,
        "max_supported_version": voter.max_supported_version,
    }


def _key_row(voter: Voter) -> dict[str, Any]:
    return {"voter_id": voter.voter_id, "directory_id": voter.directory_id}


def _endpoints_changed(before: VoterSet | None, after: VoterSet) -> list[int]:
    if before is None:
        return []
    known = {voter.key: voter for voter in before.voters}
    return [voter.voter_id for voter in after.voters if known.get(voter.key, voter) != voter]


def _batches() -> Callable[[ControlRecord], int]:
    """A grouping key for records of one batch: what one batch brings is in effect as a whole.

    Where the batch is not known, it is neighbours in offset with one epoch and one append time: a KRaft leader stamps
    all records of a control batch alike (BatchBuilder, BatchAccumulator 4.3.0). A record that brings a whole set ends
    its group.
    """
    group = 0
    last: ControlRecord | None = None

    def key(record: ControlRecord) -> int:
        nonlocal group, last
        is_same = last is not None and last.name not in WHOLE_SETS and _is_one_batch(last, record)
        group += not is_same
        last = record
        return group

    return key


def _is_one_batch(record: ControlRecord, following: ControlRecord) -> bool:
    if record.leader_epoch != following.leader_epoch:
        return False
    if record.batch_offset is not None and following.batch_offset is not None:
        return record.batch_offset == following.batch_offset
    return following.offset - record.offset == 1 and record.timestamp_ms == following.timestamp_ms


def _after(before: VoterSet | None, batch: Iterable[ControlRecord], dialect: Dialect) -> VoterSet | None:
    """The set after one control batch."""
    current = before
    for record in batch:
        apply = _APPLY[dialect].get(record.name)
        if apply is not None:
            state = current or VoterSet(record.offset, record.leader_epoch, record.timestamp_ms, "log", 0, ())
            current = replace(
                apply(state, record.fields),
                from_offset=record.offset,
                from_epoch=record.leader_epoch,
                timestamp_ms=record.timestamp_ms,
                source="log",
            )
    return current


def _kraft_version(state: VoterSet, fields: Mapping[str, Any]) -> VoterSet:
    return replace(state, kraft_version=fields["kraft_version"])


def _voters(state: VoterSet, fields: Mapping[str, Any]) -> VoterSet:
    voters = [
        Voter(
            row["voter_id"],
            _directory(row["voter_directory_id"]),
            tuple(Endpoint(e["name"], e["host"], e["port"]) for e in row["endpoints"]),
            row["kraft_version_feature"]["min_supported_version"],
            row["kraft_version_feature"]["max_supported_version"],
        )
        for row in fields["voters"]
    ]
    return replace(state, voters=tuple(sorted(voters, key=lambda voter: voter.voter_id)))


def _add_voter(state: VoterSet, fields: Mapping[str, Any]) -> VoterSet:
    """KIP-856, AddVoterRecord: a configured id gets its first UUID in place, later ones stand beside it."""
    new = Voter(fields["voter_id"], _directory(fields["voter_uuid"]))
    kept = [voter for voter in state.voters if voter.key not in ((new.voter_id, None), new.key)]
    return replace(state, voters=tuple(sorted([*kept, new], key=_order)))


def _remove_voter(state: VoterSet, fields: Mapping[str, Any]) -> VoterSet:
    key = (fields["voter_id"], _directory(fields["voter_uuid"]))
    return replace(state, voters=tuple(voter for voter in state.voters if voter.key != key))


def _undo_add(state: VoterSet, fields: Mapping[str, Any]) -> VoterSet:
    """KIP-856, Bootstrapping: nobody adds an id that is not configured, so its first record gave it its UUID."""
    before = _remove_voter(state, fields)
    voter_id = fields["voter_id"]
    if voter_id in before.ids:
        return before
    return replace(before, voters=tuple(sorted([*before.voters, Voter(voter_id)], key=_order)))


def _order(voter: Voter) -> tuple[int, str]:
    return voter.voter_id, voter.directory_id or ""


def _assignment(state: VoterSet, fields: Mapping[str, Any]) -> VoterSet:
    """KIP-642, VoterAssignmentMessage: current voters vote, target voters say where single steps lead."""
    target = fields["target_voters"]
    return replace(
        state,
        voters=tuple(Voter(voter_id) for voter_id in sorted(row["voter_id"] for row in fields["current_voters"])),
        target_voters=None if target is None else tuple(sorted(row["voter_id"] for row in target)),
    )


def _directory(directory_id: bytes) -> str | None:
    return None if directory_id == ZERO_UUID else uuid_text(directory_id)


_APPLY: Final[dict[Dialect, dict[str, Callable[[VoterSet, Mapping[str, Any]], VoterSet]]]] = {
    Dialect.KIP853: {"KRAFT_VERSION": _kraft_version, "KRAFT_VOTERS": _voters},
    Dialect.KIP856: {"ADD_VOTER": _add_voter, "REMOVE_VOTER": _remove_voter},
    Dialect.KIP642: {"VOTER_ASSIGNMENT": _assignment},
}
_UNDO: Final[dict[str, Callable[[VoterSet, Mapping[str, Any]], VoterSet]]] = {
    "ADD_VOTER": _undo_add,
    "REMOVE_VOTER": _add_voter,
}
