"""A small quorum: made from a model's settings, frozen to go on from later, recognized by a key of its state.

Times, correlations and what is only written down are no part of a state. An answer counts as awaited or not.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kraft_engine.consensus import messages
from kraft_engine.consensus.leader_state import LeaderState, ReplicaState
from kraft_engine.consensus.log_batches import Batch
from kraft_engine.consensus.membership import Kip853
from kraft_engine.consensus.messages import FetchResponse
from kraft_engine.consensus.protocols import Membership
from kraft_engine.consensus.raft import RaftNode
from kraft_engine.consensus.raft_settings import CLUSTER_ID, Settings
from kraft_engine.consensus.replica_log import MetadataLog, Snapshot
from kraft_engine.consensus.voter_sets import Voter, VoterSet
from kraft_engine.invariants.run_invariants import RaftInvariants
from kraft_engine.invariants.switches import Switches
from kraft_engine.runs.options import Options
from kraft_engine.traces.untimed import FirstChance, Message, UntimedQuorum
from kraft_engine.world.disks import QuorumState
from kraft_engine.world.processes import Cluster, Process
from kraft_engine.world.world import World


def small_quorum(quorum: Mapping[str, Any], without: tuple[str, ...]) -> UntimedQuorum:
    """Controllers 1 to `voters`, then `spares` that are no voters, formatted and not started.

    `static` is kraft.version 0, `pre_vote` KIP-996's (off by default: Kafka 3.9 has none), `dialect` kip853 or one of
    the drafts, whose quorums are static at first. Raises ValueError for an unknown key or dialect.
    """
    unknown = set(quorum) - {"voters", "spares", "static", "pre_vote", "dialect"}
    if unknown:
        raise ValueError(f"a model has no {', '.join(sorted(unknown))}")
    dialect = str(quorum.get("dialect", "kip853"))
    rules = _rules(dialect)
    is_static = bool(quorum.get("static", dialect != "kip853"))
    world = World(0)
    invariants = RaftInvariants(world, is_static=is_static and dialect == "kip853")
    invariants.one_voter_per_id = dialect != "kip856"
    settings = Settings(CLUSTER_ID, pre_vote=bool(quorum.get("pre_vote", False)))
    cluster = Cluster(world, settings, rules, invariants, switches=Options(without=without).switches)
    invariants.cluster = cluster
    ids = tuple(range(1, int(quorum.get("voters", 3)) + 1))
    if is_static:
        cluster.format_static(ids)
    else:
        cluster.format_initial_controllers(ids)
    for spare in range(int(quorum.get("spares", 0))):
        cluster.add_process(len(ids) + 1 + spare)
    return UntimedQuorum(cluster, invariants, FirstChance)


def _rules(dialect: str) -> Membership:
    from kraft_engine.drafts import Kip642, Kip856

    rules: dict[str, type[Membership]] = {"kip853": Kip853, "kip856": Kip856, "kip642": Kip642}
    if dialect not in rules:
        raise ValueError(f"a model has the dialects {', '.join(rules)}, not {dialect}")
    return rules[dialect]()


_VALUES: list[Any] = []
_PLACES: dict[Any, int] = {}
_CONTROLS: dict[int, str] = {}
MESSAGES = tuple(
    value for value in vars(messages).values() if isinstance(value, type) and value.__module__ == messages.__name__
)


def _value(place: int) -> Any:
    return _VALUES[place]


def _shared(value: Any) -> tuple[Callable[[int], Any], tuple[int]]:
    """A value that never changes is not copied with each state; equal messages are one."""
    key = value if isinstance(value, MESSAGES) else id(value)
    place = _PLACES.get(key)
    if place is None:
        place = _PLACES[key] = len(_VALUES)
        _VALUES.append(value)
    return _value, (place,)


SHARED = dict.fromkeys((Switches, Settings, Batch, VoterSet, Voter, Snapshot, QuorumState, *MESSAGES), _shared)


def freeze(quorum: UntimedQuorum) -> bytes:
    """The whole quorum as bytes that only this process reads."""
    invariants = quorum.invariants
    invariants.timeline.clear()
    invariants.events.clear()
    invariants.seen.clear()
    quorum.network.delivered.clear()
    quorum.cluster.replies.clear()
    stream = io.BytesIO()
    pickler = pickle.Pickler(stream, pickle.HIGHEST_PROTOCOL)
    pickler.dispatch_table = SHARED
    pickler.dump(quorum)
    return stream.getvalue()


def thaw(frozen: bytes) -> UntimedQuorum:
    quorum: UntimedQuorum = pickle.loads(frozen)  # noqa: S301 - made by `freeze`, in this process
    return quorum


def key_of(quorum: UntimedQuorum) -> tuple[Any, ...]:
    """Everything that what may still happen, and what may still break, depends on."""
    cluster = quorum.cluster
    waiting = sorted((_message(quorum, message) for message in quorum.network.waiting), key=_order)
    processes = tuple(_process(quorum, process) for process in cluster.processes)
    return processes, tuple(waiting), _invariants(quorum.invariants)


def is_awaited(quorum: UntimedQuorum, message: Message) -> bool:
    """Whether an answer's receiver, or a request's sender, still waits for it."""
    source, destination, correlation, _ = message
    asker, asked = (source, destination) if correlation > 0 else (destination, source)
    node = quorum.cluster.processes[asker].node
    flight = node.in_flight.get(asked) if node is not None else None
    return flight is not None and flight[0] == abs(correlation)


def _message(quorum: UntimedQuorum, message: Message) -> tuple[Any, ...]:
    body = message[3]
    if isinstance(body, FetchResponse):
        content: Any = (body.error, body.leader_id, body.leader_epoch, body.high_watermark, _batches(body.batches),
                        body.diverging, body.snapshot_id)  # fmt: skip
    else:
        content = body
    return message[0], message[1], type(body).__name__, is_awaited(quorum, message), content


def _order(message: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*message[:4], hash(message[4]))


def _batches(batches: Iterable[Batch]) -> tuple[Any, ...]:
    return tuple((batch.base_offset, batch.epoch, len(batch.records), _voters_in(batch)) for batch in batches)


def _voters_in(batch: Batch) -> str:
    """What a control batch says of voters; other records differ in nothing."""
    if not batch.is_control:
        return ""
    text = _CONTROLS.get(id(batch))
    if text is None:
        # Held for good, so that no other batch takes its id.
        _shared(batch)
        text = _CONTROLS[id(batch)] = repr(batch.records)
    return text


def _log(log: MetadataLog) -> tuple[Any, ...]:
    return _batches(log.batches), tuple(log.epoch_starts), log.start_offset, tuple(map(_snapshot, log.snapshots))


def _snapshot(snapshot: Snapshot) -> Any:
    return snapshot.id


def _process(quorum: UntimedQuorum, process: Process) -> tuple[Any, ...]:
    disk, node = process.disk, process.node
    state = disk.visible_state
    stored = (state.epoch, state.leader_id, state.voted, state.voter_ids, state.applied_offset) if state else ()
    held = (disk.directory, stored, _log(disk.log), disk.bootstrap is not None)
    return held if node is None else (*held, _node(quorum, node))


def _node(quorum: UntimedQuorum, node: RaftNode) -> tuple[Any, ...]:
    leader = _leader(quorum, node, node.leader) if node.leader is not None else ()
    flights = tuple(sorted((slot, _flight(quorum, node, slot, number)) for slot, (number, _) in node.in_flight.items()))
    return (
        node.role, node.epoch, node.leader_id, node.voted, node.high_watermark, tuple(sorted(node.granted)),
        tuple(sorted(node.rejected)), node.had_leader_id, flights, node.fetched_once, node.fetch_epoch_override,
        node.snapshot_fetch, node.update_sent_epoch == node.epoch, node.downgraded_epoch, node.successors,
        tuple((offset, _voters(voters)) for offset, voters in node.history.entries()), node.history.version,
        len(node.pending_controls), leader,
    )  # fmt: skip


def _flight(quorum: UntimedQuorum, node: RaftNode, slot: int, number: int) -> str:
    """Whether a request or its answer is still under way, or a back-off: nothing ends that but another role."""
    if number < 0:
        return "backs off"
    for source, destination, correlation, _ in quorum.network.waiting:
        if abs(correlation) == number and {source, destination} == {node.slot, slot}:
            return "under way"
    return "unanswered"


def _voters(voters: VoterSet | None) -> Any:
    return (voters.keys, tuple(sorted(voters.target or ()))) if voters is not None else ()


def _replica(state: ReplicaState) -> tuple[Any, ...]:
    return state.key, state.end_offset, state.last_caught_up_us >= 0, state.last_fetch_end, state.next_begin_us > 0


def _leader(quorum: UntimedQuorum, node: RaftNode, leader: LeaderState) -> tuple[Any, ...]:
    parked = []
    for source, correlation, request, _ in leader.parked:
        awaited = is_awaited(quorum, (source, node.slot, correlation, request))
        parked.append((source, awaited, request.fetch_offset, request.last_fetched_epoch, request.high_watermark))
    pending = leader.pending
    change = (pending.is_add, pending.voter.key, pending.offset, pending.ack_when_committed) if pending else ()
    return (
        leader.epoch_start, leader.high_watermark, _voters(leader.voters), leader.granted,
        tuple(sorted(map(_replica, leader.replicas.values()))),
        tuple(sorted(map(_replica, leader.observers.values()))), tuple(sorted(parked)), change, leader.writable,
        tuple(sorted(leader.known_directories)), tuple(sorted(leader.updated_voters)), leader.forgot_removal,
        tuple((queued.is_add, queued.voter.key, queued.offset) for queued in leader.queued),
        tuple(sorted(leader.no_followers)), tuple(entry[0] for entry in leader.unanswered), leader.bootstrapped,
    )  # fmt: skip


def _invariants(invariants: RaftInvariants) -> tuple[Any, ...]:
    ledger = invariants.ledger
    epochs = tuple(
        (epoch, truth.leader, truth.start_offset, tuple(sorted(truth.ends.items())),
         tuple((_voters(voters), limit) for voters, limit in truth.sets))
        for epoch, truth in sorted(ledger.epochs.items())
    )  # fmt: skip
    marks = tuple(sorted((slot, mark) for slot, (_, mark) in invariants.marks.items()))
    return (
        ledger.committed_offset, _batches(ledger.batches), epochs, tuple(ledger.commits),
        tuple(sorted(invariants.leaders.items())), tuple(sorted(invariants.elections.items())),
        tuple(sorted(invariants.votes.items())), tuple(sorted(invariants.persisted_epochs.items())), marks,
        tuple(sorted(invariants.seen_epochs.items())), tuple(sorted(invariants.lost_ends.items())),
        invariants.highest_mark, invariants.highest_mark_epoch,
    )  # fmt: skip
