"""The history of the voter set: applied when appended, reverted when truncated, persisted in snapshots.

`VoterSetHistory`, `KRaftControlRecordStateMachine` (Kafka 4.3.0, KIP-853) for `kip853`; the proposals' texts for the
two dialects that never shipped. A history is that of one branch: another branch may hold changes that were truncated.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

from kraft_audit.capture.decoded_records import ControlRecord
from kraft_audit.capture.found_log import VoterKey
from kraft_audit.capture.survey import LEADER_CHANGE
from kraft_codec.schemas import ZERO_UUID, Dialect
from kraft_codec.text.java_text import uuid_text

BOOTSTRAP_OFFSET: Final = -1
"""Kafka keeps the voters of the 0-0 checkpoint under offset -1 (KRaftControlRecordStateMachine, 4.3.0)."""
WHOLE_SETS: Final = frozenset({"KRAFT_VOTERS", "VOTER_ASSIGNMENT"})
"""Records that hold a whole voter set: two of them in a row are two changes."""
STATIC: Final = "static"
"""The source of a set that is configured on each node."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a node listens: the name of the listener, host and port."""

    name: str
    host: str
    port: int

    @property
    def place(self) -> str:
        """HOST:PORT, as configs and commands take it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def address(self) -> str:
        """As `listeners` has it."""
        return f"{self.name}://{self.place}"


@dataclass(frozen=True, slots=True)
class Voter:
    """A voter. `directory_id` is None where the set does not have it (static quorum): it then matches by id alone."""

    voter_id: int
    directory_id: str | None = None
    endpoints: tuple[Endpoint, ...] = ()
    min_supported_version: int = 0
    max_supported_version: int = 0

    @property
    def key(self) -> VoterKey:
        return self.voter_id, self.directory_id


@dataclass(frozen=True)
class VoterSet:
    """A voter set, in effect from the append of the record at `from_offset` on.

    `source` is static, bootstrap, snapshot or log: a static set is in effect from the LeaderChange of the first leader
    that named it. `voters` ascend by id. `target_voters` are KIP-642's.
    """

    from_offset: int
    from_epoch: int
    timestamp_ms: int | None
    source: str
    kraft_version: int
    voters: tuple[Voter, ...]
    target_voters: tuple[int, ...] | None = None

    @cached_property
    def ids(self) -> frozenset[int]:
        return frozenset(voter.voter_id for voter in self.voters)

    @cached_property
    def by_id(self) -> Mapping[int | None, Sequence[Voter]]:
        """The voters of each id, in the order of the set. Each replica asks for its own: a set may have thousands."""
        voters_of: dict[int | None, list[Voter]] = defaultdict(list)
        for voter in self.voters:
            voters_of[voter.voter_id].append(voter)
        return dict(voters_of)

    @property
    def is_static(self) -> bool:
        """Whether no change of this set can have gone unseen: it is configured, and each leader names its own."""
        return self.source == STATIC and self.kraft_version == 0

    def holds(self, node_id: int, directory_id: str | None) -> bool:
        """Whether that replica is a voter: by id and directory id, by id alone where either has no directory id."""
        return any(
            voter.directory_id is None or directory_id in (None, voter.directory_id)
            for voter in self.by_id.get(node_id, ())
        )

    def is_disk_of(self, voter: Voter, directory_id: str | None) -> bool:
        """Whether a disk with the voter's id is that voter's disk.

        A voter without a directory id (static quorum) matches any disk of its id. A disk without one matches only while
        a single disk of the id votes.
        """
        if voter.directory_id is None or directory_id == voter.directory_id:
            return True
        return directory_id is None and len(self.by_id.get(voter.voter_id, ())) == 1


def voter_history(
    records: Iterable[ControlRecord],
    *,
    dialect: Dialect = Dialect.KIP853,
    static_voters: Sequence[int] = (),
    before: VoterSet | None = None,
) -> list[VoterSet]:
    """The voter sets of one branch in the order in which they came into effect.

    `records`: the branch's control records in log order. `before`: the set in effect where they begin, from
    `checkpoint_voters` or an earlier part of the history; without it the history begins with the static voters. At
    kraft.version 0 the LeaderChange of a leader that goes by other voters begins a set.
    """
    current = before
    history: list[VoterSet] = []
    if current is None and static_voters:
        current = static_set(static_voters, _first_version(dialect))
    if current is not None:
        history.append(current)
    relevant = (record for record in records if record.name in _APPLY[dialect])
    for _, batch in groupby(relevant, key=_same_batch_key()):
        earlier, current = current, _after(current, batch, dialect)
        if current is not None and current.voters and (earlier is None or _content(earlier) != _content(current)):
            history.append(current)
    return history


def static_set(voter_ids: Collection[int], kraft_version: int = 0) -> VoterSet:
    """The set of these voters as configured where a history begins."""
    voters = tuple(Voter(voter_id) for voter_id in sorted(voter_ids))
    return VoterSet(BOOTSTRAP_OFFSET, 0, None, STATIC, kraft_version, voters)


def checkpoint_voters(
    records: Iterable[ControlRecord], end_offset: int, epoch: int, *, dialect: Dialect = Dialect.KIP853
) -> VoterSet | None:
    """The voter set in a snapshot, in effect from the snapshot's last offset; None where it has none."""
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
    """The set of a deleted bootstrap checkpoint, from the batch at offset 0; None for a configured quorum.

    `records`: a log's control records from offset 0 on. Its first leader wrote the checkpoint's set beside its
    LeaderChange, with its own endpoints and versions brought up to date
    (LeaderState.appendStartOfEpochControlRecords, 4.3.0). Without these directory ids any disk that has a first voter's
    id today would be taken for that voter's disk.
    """
    if not records or records[0].offset != 0:
        return None
    _, first = next(groupby(records, key=_same_batch_key()))
    recorded = _after(None, first, Dialect.KIP853)
    if recorded is None or not recorded.voters or recorded.source == STATIC:
        return None
    return replace(recorded, from_offset=BOOTSTRAP_OFFSET, from_epoch=0, timestamp_ms=None, source="bootstrap")


def voters_before(
    after: VoterSet, records: Sequence[ControlRecord], *, dialect: Dialect = Dialect.KIP853
) -> VoterSet | None:
    """The set before the records that led to `after`; None where one of them holds a whole set and so hides it.

    KIP-856's records say what changed, so they can be undone. Undoing an id's first record leaves the configured id.
    """
    current = after
    changing = _APPLY[dialect].keys() - {LEADER_CHANGE}
    for record in reversed([record for record in records if record.name in changing]):
        undo = _UNDO.get(record.name)
        if undo is None:
            return None
        current = undo(current, record.fields)
    return current


def in_effect(history: Sequence[VoterSet], offset: int) -> VoterSet | None:
    """The set in effect once the record at `offset` was appended."""
    newest = None
    for voter_set in history:
        if voter_set.from_offset > offset:
            break
        newest = voter_set
    return newest


def added(before: VoterSet | None, after: VoterSet) -> list[Voter]:
    """Voters of `after` that are not in `before`; compared by id alone where either has no directory id."""
    return [voter for voter in after.voters if before is None or not before.holds(*voter.key)]


def removed(before: VoterSet | None, after: VoterSet) -> list[Voter]:
    """Voters of `before` that are not in `after`."""
    return [] if before is None else added(after, before)


def _content(voter_set: VoterSet) -> tuple[Any, ...]:
    return voter_set.kraft_version, voter_set.voters, voter_set.target_voters


def _same_batch_key() -> Callable[[ControlRecord], int]:
    """A grouping key for the records of one batch: the changes of one batch take effect together.

    Where the batch is not known, records belong together that are adjacent and have one epoch and one append time: a
    KRaft leader gives all records of a control batch the same time (BatchBuilder, BatchAccumulator, 4.3.0). A record
    with a whole set ends its group.
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
    """The set after the records of one control batch."""
    current = before
    for record in batch:
        apply = _APPLY[dialect].get(record.name)
        if apply is None:
            continue
        version = _first_version(dialect)
        state = current or VoterSet(record.offset, record.leader_epoch, record.timestamp_ms, "log", version, ())
        applied = apply(state, record.fields)
        if record.name == LEADER_CHANGE and applied is state:
            continue
        current = replace(
            applied,
            from_offset=record.offset,
            from_epoch=record.leader_epoch,
            timestamp_ms=record.timestamp_ms,
            source=STATIC if record.name == LEADER_CHANGE else "log",
        )
    return current


def _first_version(dialect: Dialect) -> int:
    """The kraft.version before any record sets it. In the drafts no record does, and every set can change."""
    return 0 if dialect is Dialect.KIP853 else 1


def _apply_leader_change(state: VoterSet, fields: Mapping[str, Any]) -> VoterSet:
    """At kraft.version 0 the voters of a leader are those of its own configuration, which its LeaderChange lists."""
    ids = frozenset(voter["voter_id"] for voter in fields["voters"])
    is_configured = state.is_static or (state.kraft_version == 0 and not state.voters)
    if not is_configured or not ids or ids == state.ids:
        return state
    return replace(state, voters=static_set(ids).voters)


def _apply_kraft_version(state: VoterSet, fields: Mapping[str, Any]) -> VoterSet:
    return replace(state, kraft_version=fields["kraft_version"])


def _apply_voters(state: VoterSet, fields: Mapping[str, Any]) -> VoterSet:
    voters = [
        Voter(
            row["voter_id"],
            _directory(row["voter_directory_id"]),
            tuple(Endpoint(point["name"], point["host"], point["port"]) for point in row["endpoints"]),
            row["kraft_version_feature"]["min_supported_version"],
            row["kraft_version_feature"]["max_supported_version"],
        )
        for row in fields["voters"]
    ]
    return replace(state, voters=tuple(sorted(voters, key=lambda voter: voter.voter_id)))


def _add_voter(state: VoterSet, fields: Mapping[str, Any]) -> VoterSet:
    """KIP-856, AddVoterRecord: the first UUID of a configured id replaces it, further UUIDs are added beside it."""
    new = Voter(fields["voter_id"], _directory(fields["voter_uuid"]))
    before, own, after = _around(state, new.voter_id)
    own = sorted([new, *(voter for voter in own if voter.key not in ((new.voter_id, None), new.key))], key=_voter_order)
    return replace(state, voters=(*before, *own, *after))


def _remove_voter(state: VoterSet, fields: Mapping[str, Any]) -> VoterSet:
    key = (fields["voter_id"], _directory(fields["voter_uuid"]))
    before, own, after = _around(state, key[0])
    return replace(state, voters=(*before, *(voter for voter in own if voter.key != key), *after))


def _around(state: VoterSet, voter_id: int) -> tuple[Sequence[Voter], Sequence[Voter], Sequence[Voter]]:
    """The voters before an id, those of the id, and those after it. One batch may add thousands."""
    first = bisect_left(state.voters, voter_id, key=attrgetter("voter_id"))
    end = bisect_right(state.voters, voter_id, first, key=attrgetter("voter_id"))
    return state.voters[:first], state.voters[first:end], state.voters[end:]


def _undo_add(state: VoterSet, fields: Mapping[str, Any]) -> VoterSet:
    """KIP-856, Bootstrapping: only configured ids are added, so the first record of an id gave it its UUID."""
    before = _remove_voter(state, fields)
    voter_id = fields["voter_id"]
    if _around(before, voter_id)[1]:
        return before
    return replace(before, voters=tuple(sorted([*before.voters, Voter(voter_id)], key=_voter_order)))


def _voter_order(voter: Voter) -> tuple[int, str]:
    return voter.voter_id, voter.directory_id or ""


def _apply_assignment(state: VoterSet, fields: Mapping[str, Any]) -> VoterSet:
    """KIP-642, VoterAssignmentMessage: the current voters vote; the target voters are what single steps lead to."""
    target = fields["target_voters"]
    return replace(
        state,
        voters=tuple(Voter(voter_id) for voter_id in sorted(row["voter_id"] for row in fields["current_voters"])),
        target_voters=None if target is None else tuple(sorted(row["voter_id"] for row in target)),
    )


def _directory(directory_id: bytes) -> str | None:
    return None if directory_id == ZERO_UUID else uuid_text(directory_id)


_APPLY: Final[dict[Dialect, dict[str, Callable[[VoterSet, Mapping[str, Any]], VoterSet]]]] = {
    Dialect.KIP853: {
        LEADER_CHANGE: _apply_leader_change,
        "KRAFT_VERSION": _apply_kraft_version,
        "KRAFT_VOTERS": _apply_voters,
    },
    Dialect.KIP856: {"ADD_VOTER": _add_voter, "REMOVE_VOTER": _remove_voter},
    Dialect.KIP642: {"VOTER_ASSIGNMENT": _apply_assignment},
}
_UNDO: Final[dict[str, Callable[[VoterSet, Mapping[str, Any]], VoterSet]]] = {
    "ADD_VOTER": _undo_add,
    "REMOVE_VOTER": _add_voter,
}
