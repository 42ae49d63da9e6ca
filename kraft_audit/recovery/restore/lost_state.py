"""What logs hold that a cluster no longer has: of a suffix that was truncated or diverged, or after a rescue.

Something is lost where the lost log created or changed it after it parted from the log that the cluster goes on with,
and the cluster has it neither so nor changed by itself since. What the lost log deleted, and is there again, is named.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from kraft_audit.capture.declared_rescue import DeclaredRescue, read_rescue
from kraft_audit.capture.plan import ClusterPlan
from kraft_audit.reading import ClusterReading
from kraft_audit.recovery.restore.restorable_state import RestorableState, RestorableTopic, restorable_state
from kraft_audit.recovery.restore.restore_commands import LeftOut, acl_text
from kraft_audit.recovery.restore.revoked_rights import RevokedRights, revoked_rights
from kraft_audit.replay.cluster_state import state_at
from kraft_audit.replay.driver import BranchLog
from kraft_codec.file_names import FileKind
from kraft_codec.storage.random_access import Storage

DELETED: Final = "it was deleted in the lost log and is there again: delete it where that was meant"
BOTH_CHANGED: Final = "both logs changed it: the cluster's own value stays"
_Value = TypeVar("_Value")
_Key = TypeVar("_Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class LostLog:
    """A log that the cluster does not go on with: its state where it parted, and at its end; None is unknown."""

    name: str
    parted: RestorableState
    ended: RestorableState
    is_complete: bool


@dataclass(frozen=True, slots=True)
class LostState:
    """What is to be created or set, what has to be said of the rest, and the rights that are there again, by log."""

    wanted: RestorableState
    notes: tuple[LeftOut, ...]
    revoked: tuple[RevokedRights, ...] = ()


def lost_logs(reading: ClusterReading, log: BranchLog, end_offset: int) -> Iterator[LostLog]:
    """Every log of a survey that goes on otherwise, or further, than `log` up to `end_offset`; the best one last."""
    survey = reading.survey
    parents = {branch.parent for branch in survey.branches}
    tips = {branch.number for branch in survey.branches if branch.number not in parents}
    logs = []
    for tip in {*tips, *survey.path(log.branch)[-1:]}:
        branch_log = BranchLog(reading, tip)
        parting = min(survey.common_to(tip, log.branch), end_offset)
        if branch_log.end_offset > (parting if log.beyond is None else end_offset):
            logs.append((branch_log.epochs[-1].epoch, branch_log.end_offset, parting, branch_log))
    for epoch, end, parting, branch_log in sorted(logs, key=lambda entry: entry[:3]):
        # A snapshot that stands for a log has no records to part from: its state stands for what both had.
        parted = (
            state_at(branch_log, offset=parting - 1) if log.beyond is None else state_at(log, offset=end_offset - 1)
        )
        ended = state_at(branch_log, offset=end - 1)
        name = f"offsets {parting} to {end - 1} of the log that ends in epoch {epoch}"
        is_complete = parted.is_complete and ended.is_complete
        yield LostLog(name, restorable_state(parted), restorable_state(ended), is_complete)


def lost_state(logs: Sequence[LostLog], present: RestorableState) -> LostState:
    """What the logs had and the cluster lacks. Of what two of them set, the later one's value counts."""
    notes: dict[LeftOut, None] = {}
    topics: dict[str, RestorableTopic] = {}
    values: dict[tuple[str, Any], Any] = {}
    for log in logs:
        for name, topic in _lost_topics(log, present, notes):
            earlier = topics.get(name, topic)
            if earlier.topic_id != topic.topic_id:
                reason = f"another lost log had one of this name, which counts: {topic.topic_id}"
                notes[LeftOut("topic", f"{name} {earlier.topic_id}", reason)] = None
            topics[name] = topic
        for part, flat in _FLAT.items():
            before, after, now = (flat(state) for state in (log.parted, log.ended, present))
            for key, value in _lost_values(part, (before, after, now), notes):
                values[part, key] = value
    of: dict[str, dict[Any, Any]] = {part: {} for part in _FLAT}
    for (part, key), value in values.items():
        of[part][key] = value
    configs = _nested(of["config"])
    for log in logs:
        for name in topics:
            if name in log.ended.topics and name not in present.topics:
                # It takes all its configs along, whenever they were set.
                configs["TOPIC", name] = dict(log.ended.configs.get(("TOPIC", name), {}))
    wanted = RestorableState(
        dict(sorted(topics.items())),
        {resource: each for resource, each in sorted(configs.items()) if each},
        _nested(of["client quota"]),
        of["SCRAM credential"],
        frozenset(of["ACL"]),
        of["delegation token"],
        of["feature"],
    )
    revoked = (revoked_rights(log.parted, log.ended).in_state(present) for log in logs)
    return LostState(wanted, tuple(notes), tuple(dict.fromkeys(revoked)))


def _nested(values: Mapping[tuple[Any, str], Any]) -> dict[Any, dict[str, Any]]:
    values_by_owner: dict[Any, dict[str, Any]] = {}
    for (owner, key), value in values.items():
        values_by_owner.setdefault(owner, {})[key] = value
    return values_by_owner


def _lost_topics(
    log: LostLog, present: RestorableState, notes: dict[LeftOut, None]
) -> Iterator[tuple[str, RestorableTopic]]:
    for name, topic in log.ended.topics.items():
        before, now = log.parted.topics.get(name), present.topics.get(name)
        is_new = before is None or before.topic_id != topic.topic_id
        if now is None:
            if is_new:
                yield name, topic
            elif before != topic:
                notes[LeftOut("topic", name, "both logs changed it: the cluster deleted it")] = None
        elif is_new and before is not None and before.topic_id == now.topic_id:
            reason = f"it was deleted and made again in the lost log: delete the topic that is there ({now.topic_id})"
            notes[LeftOut("topic", name, f"{reason} before this script creates the lost one")] = None
            yield name, topic
        elif is_new and now.topic_id != topic.topic_id:
            reason = f"there is another topic of this name, {now.topic_id}; the lost one was {topic.topic_id}"
            notes[LeftOut("topic", name, reason)] = None
        elif before is not None and topic.replicas != before.replicas and topic.replicas != now.replicas:
            if now.replicas == before.replicas:
                yield name, topic
            else:
                notes[LeftOut("assignment", name, BOTH_CHANGED)] = None
    for name, topic in log.parted.topics.items():
        there = present.topics.get(name)
        if name not in log.ended.topics and there is not None and there.topic_id == topic.topic_id:
            notes[LeftOut("topic", name, DELETED)] = None


def _lost_values(
    part: str, states: tuple[Mapping[_Key, _Value], ...], notes: dict[LeftOut, None]
) -> Iterator[tuple[_Key, _Value]]:
    before, after, now = states
    for key, value in after.items():
        if before.get(key) == value or now.get(key) == value:
            continue
        if now.get(key) != before.get(key):
            notes[LeftOut(part, _text(part, key, value), BOTH_CHANGED)] = None
        else:
            yield key, value
    for key, value in before.items():
        if key not in after and key in now:
            notes[LeftOut(part, _text(part, key, value), DELETED)] = None


def _text(part: str, key: Any, value: Any) -> str:
    if part == "ACL":
        return acl_text(key)
    if part == "delegation token":
        return f"of {value['owner']}"
    return " ".join(str(each) for each in _flattened(key) if each not in (None, ""))


def _flattened(key: Any) -> Iterator[Any]:
    if isinstance(key, tuple):
        for each in key:
            yield from _flattened(each)
    else:
        yield key


def _by_key(nested: Mapping[Any, Mapping[str, Any]]) -> dict[tuple[Any, str], Any]:
    return {(owner, key): value for owner, values in nested.items() for key, value in values.items()}


_FLAT: Final[Mapping[str, Callable[[RestorableState], Mapping[Any, Any]]]] = {
    "config": lambda state: _by_key(state.configs),
    "client quota": lambda state: _by_key(state.quotas),
    "SCRAM credential": lambda state: dict(state.credentials),
    "ACL": lambda state: dict.fromkeys(state.acls, True),
    "delegation token": lambda state: dict(state.tokens),
    "feature": lambda state: dict(state.features),
}
"""The parts of a state by what names each value in them."""


def rescued_from(reading: ClusterReading, declared: DeclaredRescue) -> tuple[BranchLog, int] | None:
    """The copy that a rescue went on from, and the end of what it took, in a reading of the old disks.

    None where the copy is not among them.
    """
    survey, archived_ms = reading.survey, declared.source_archived_ms
    source = (declared.source_node_id, declared.source_directory_id, declared.source_capture, archived_ms)
    for replica in survey.replicas:
        plan = replica.plan
        own_ms = plan.captured_at_ms if plan.is_archived else None
        if (plan.node_id, plan.directory_id, plan.capture, own_ms) == source:
            beyond = next((each for each in survey.snapshots if each.source == declared.source_snapshot), None)
            end = survey.ends[replica.number]
            if beyond is None and end.end_offset < declared.cut:  # its log was moved away
                return None
            return BranchLog(reading, end.branch, beyond=beyond), declared.cut
    return None


def declared_rescue(storage: Storage, cluster: ClusterPlan) -> DeclaredRescue | None:
    """What `rescue` declares of a node dir that was read; None where none has a rescue.json that can be read."""
    for replica in cluster.replicas:
        for file in replica.files:
            if file.kind == FileKind.RESCUE_DECLARATION:
                rescue, _ = read_rescue(storage, replica, file)
                if rescue is not None:
                    return rescue
    return None
