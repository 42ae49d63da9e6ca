"""May this broker be started, restarted, emptied or taken out of the cluster: what its partitions say.

A copy counts as another one only while Kafka can elect it and it surely holds every acknowledged record: in ISR or ELR,
in service or stopped in order (KIP-966). A member of the ELR that crashed leaves it when it registers again, and then
Kafka elects the last known leader (PartitionChangeBuilder, Kafka 4.3).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence, Set
from typing import Final

import numpy as np

from kraft_audit.recovery.may_i.permission import Action, Permission, Question, Verdict
from kraft_audit.recovery.may_i.unclean_start import led_uncleanly, unclean_start
from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.columns.broker_stops import gone_brokers
from kraft_audit.rules.columns.captures import newest_watermark
from kraft_audit.rules.columns.frame import holders
from kraft_audit.rules.columns.kafka_commands import (
    BROKER_CONFIG,
    UNKNOWN_ADDRESS,
    broker_address,
    format_disk,
    start_node,
    unregister_broker,
)
from kraft_audit.rules.columns.loss_holders import Loss, losses, losses_beside
from kraft_audit.rules.columns.nodes import broker_states, is_up
from kraft_audit.rules.columns.partition_states import PartitionStates, partition_states
from kraft_audit.rules.columns.quorum_standing import quorum_standing
from kraft_audit.rules.columns.reassignments import entry_without, is_reassigned, reassign
from kraft_audit.rules.columns.sure_copies import copies, last_leader, misplaced, surely_beside
from kraft_audit.rules.columns.witnesses import witnesses
from kraft_audit.tables.number_arrays import Rows
from kraft_audit.text.readable import listed, plural, when
from kraft_audit.text.shell_commands import with_copy

PARTITIONS_NAMED: Final = 3
MOVED_TOGETHER: Final = 20
"""Partitions in one printed reassignment: a line that can be read, and no load that fills the network."""


def broker_permission(question: Question, history: ClusterHistory) -> Permission | None:
    """The answer for a broker; None where the log never registered one of that id."""
    if question.node_id not in broker_states(history):
        return None
    up = [broker for broker in broker_states(history) if is_up(history, broker)]
    running = tuple(sorted(({*up, question.node_id} - question.gone) - (question.stopped - {question.node_id})))
    if question.action is Action.START:
        return _start(question, history, running)
    if question.action is Action.RESTART:
        return _restart(question, history, running)
    if question.action is Action.SCALE_IN:
        return _scale_in(question, history, running)
    return _lose(question, history, running)


def _rows(states: PartitionStates, broker: int, *lists: str) -> Rows:
    """The newest rows of partitions that name the broker in one of these lists."""
    is_named = np.zeros(len(states), bool)
    for name in lists:
        is_named |= states.in_order(holders(states.changes.lists[name], (broker,)))
    rows: Rows = np.flatnonzero(is_named & states.is_last & states.exists)
    return rows


def _lose(question: Question, history: ClusterHistory, running: tuple[int, ...]) -> Permission:
    """No while Kafka can elect only it, it led last, or it alone holds what a loss passed over; yes only where another
    replica of each partition surely holds what was acknowledged."""
    states, broker = partition_states(history), question.node_id
    if (kept := _keeps_lost_records(question, history, running)) is not None:
        return kept
    alone: list[int] = []
    unsure: list[int] = []
    rows = _rows(states, broker, "replicas", "isr", "elr", "last_known_elr")
    for row in rows[~surely_beside(history, broker, question.stopped | question.gone, question.gone)[rows]].tolist():
        known = copies(history, row, question.stopped | question.gone)
        if known.sure - question.gone - {broker}:
            continue
        is_last = known.electable - question.gone <= {broker} or broker in known.sure or known.last_leader == broker
        (alone if is_last and broker in known.electable else unsure).append(row)
    path = shlex.quote(question.path)
    if alone:
        reason = f"{_last_copy_text(history, broker, alone, question.gone)}."
        step = f"Let another replica into the ISR first: kraft-audit recover-plan {path}"
        return Permission(Verdict.NO, reason, (step,), running)
    if unsure:
        reason = (
            f"No other replica of {_names(states, unsure)} surely has every acknowledged record: those that could lead "
            "crashed, are stopped, or are gone."
        )
        step = f"Keep its disk until they lead again: kraft-audit recover-plan {path}"
        return Permission(Verdict.UNDECIDED, reason, (step,), running)
    if (may_keep := _may_keep_lost_records(question, history, running)) is not None:
        return may_keep
    if uncommitted := _joined_uncommitted(question, history, rows):
        reason = (
            f"The other replicas of {_names(states, uncommitted)} joined the ISR by records that are not proven "
            "committed: without those nobody but this broker is in it."
        )
        step = f"Copy the disks of all controllers again below {path}, then: {_asked(question, path)}"
        return Permission(Verdict.UNDECIDED, reason, (step,), running)
    doubt = _what_replay_lacks(history)
    if doubt is not None:
        return Permission(Verdict.UNDECIDED, doubt, (f"kraft-audit check {path}",), running)
    reason = (
        f"Every partition of broker {broker} has its acknowledged records on another replica, which is in the ISR or "
        "the ELR, and runs or was stopped in order."
    )
    if short := [] if broker in question.stopped | question.gone else _short_without(history, broker):
        reason += f" While it is away {_refused_text(states, short)}."
    steps: tuple[str, ...] = ()
    if question.action is Action.FORMAT:
        formatting = format_disk(history.cluster_id, joins=False, beside_data=True, config=BROKER_CONFIG)
        steps = (f"With broker {broker} stopped and its disk emptied: {formatting}", start_node(BROKER_CONFIG))
    return Permission(Verdict.YES, reason, steps, running)


def _joined_uncommitted(question: Question, history: ClusterHistory, rows: Rows) -> list[int]:
    """Newest rows of partitions whose other sure copies were not eligible yet as far as the log is proven committed.

    What leaves the ISR by such a record is taken as gone, what joins by it as not there.
    """
    newest, states = newest_watermark(history), partition_states(history)
    if newest is None:
        return []
    is_open = states.from_offset >= newest["low"]
    away = question.stopped | question.gone
    found = []
    for row in rows[is_open[rows]].tolist():
        before = row
        while is_open[before] and not states.is_first[before]:
            before -= 1
        others = copies(history, row, away).sure - question.gone - {question.node_id}
        eligible = {*states.nodes("isr", before), *states.nodes("elr", before)}
        if others and not others & eligible and question.node_id in eligible:
            found.append(row)
    return found


def _scale_in(question: Question, history: ClusterHistory, running: tuple[int, ...]) -> Permission:
    """No while a replica list names it, whoever else has the records: nobody would ever fill its place.

    A reassignment below min ISR leaves it in the ELR (ReplicationControlManager, up to 4.4), and no other takes it out.
    """
    states, broker = partition_states(history), question.node_id
    rows = _rows(states, broker, "replicas", "isr").tolist()
    if not rows or not is_up(history, broker) or broker in question.gone | question.stopped:
        answer = _lose(question, history, running)
        if answer.verdict is not Verdict.YES:
            return answer
    if not rows:
        server = f"--bootstrap-server {_address(history, running, broker)}"
        eligible = _rows(states, broker, "elr", "last_known_elr").tolist()
        reason = f"No partition names broker {broker}."
        if eligible:
            reason = (
                f"No replica list names broker {broker}. The ELR of {_names(states, eligible)} still does: never start "
                f"another broker under the id {broker}, which could be elected there without the records."
            )
        return Permission(
            Verdict.YES, reason, (f"With broker {broker} stopped: {unregister_broker(server, broker)}",), running
        )
    count = plural(len(rows), "partition")
    reason = (
        f"{count} still count{'s' * (len(rows) == 1)} on broker {broker}: {_names(states, rows)}. Without a "
        "reassignment nobody takes its place in their replica lists."
    )
    return Permission(Verdict.NO, reason, tuple(_moving_steps(question, history, rows, running)), running)


def _moving_steps(
    question: Question, history: ClusterHistory, rows: Sequence[int], running: Sequence[int]
) -> Iterator[str]:
    """The reassignment of the partitions, some at a time, and how to ask again."""
    states, broker = partition_states(history), question.node_id
    away = question.gone | question.stopped
    leaving = {broker, *gone_brokers(history)}
    moved = [entry_without(history, states, row, leaving, away) for row in rows[:MOVED_TOGETHER]]
    path = shlex.quote(question.path)
    server, other = (f"--bootstrap-server {_address(history, running, but)}" for but in (None, broker))
    if not any(is_up(history, other) for other in broker_states(history).keys() - away - {broker}):
        yield f"No other broker is up to take them: start one, copy the disks again, then: {_asked(question, path)}"
        return
    sizes = [states.size_of("replicas", row) for row in rows]
    shorter = sum(len(entry["replicas"]) < size for entry, size in zip(moved, sizes, strict=False))
    if any(not entry["replicas"] for entry in moved):
        yield f"No broker that is up can take all of them: start more, then: {_asked(question, path)}"
        return
    text = f"The first {len(moved)}: " if len(moved) < len(rows) else ""
    if shorter:
        yield f"Add a broker first: none is up that could take the place in {plural(shorter, 'partition')}."
        text = "Only if a copy less will do: "
    if is_up(history, broker):
        yield f"If broker {broker} is down, wait until it is fenced: Kafka's tool asks it for its log dirs until then."
    yield f"{text}{reassign(server, moved)}"
    yield f"Wait until it is done: {is_reassigned(server)}"
    yield f"Then copy the controllers' disks again: {_asked(question, path)}"
    yield f"Once no partition names it, stop broker {broker}, then: {unregister_broker(other, broker)}"


def _asked(question: Question, quoted_path: str) -> str:
    return f"kraft-audit may-i {question.action} {question.node_id} {quoted_path}"


def _last_copy_text(history: ClusterHistory, broker: int, rows: Sequence[int], gone: Set[int]) -> str:
    """Why a broker's copies of some partitions may not go: the only ones, or those of the last leader."""
    states = partition_states(history)
    only = [row for row in rows if copies(history, row).electable - gone <= {broker}]
    led = [row for row in rows if row not in only]
    parts = []
    if only:
        parts.append(f"Broker {broker} has the only copy of {_names(states, only)} that Kafka can elect")
    if led:
        parts.append(
            f"Broker {broker} led {_names(states, led)} last: Kafka elects it where no other replica is eligible, and "
            "the newest acknowledged records may be on its disk alone"
        )
    return ". ".join(parts)


def _keeps_lost_records(question: Question, history: ClusterHistory, running: tuple[int, ...]) -> Permission | None:
    """No, where the broker is an intact holder of records that a loss passed over; None where it is none, or where a
    copy has all of them."""
    broker, copied = question.node_id, question.copied
    held = _held_losses(history, broker)
    lacking = dict(copied.lacking) if copied is not None else {each.event.key: "" for each in held}
    held = [each for each in held if each.event.key in lacking]
    if not held:
        return None
    names = _listed_names([each.event.name for each in held])
    leader = held[0].event.leader_id
    if question.action in (Action.START, Action.RESTART):
        effect = f"When broker {broker} starts it truncates them to the log of the elected leader"
    else:
        effect = "Without its disk nobody has them"
    reason = (
        f"Broker {broker} still holds records of {names} that broker {leader} may lack, which leads since "
        f"{when(held[0].event.timestamp_ms)}. {effect}."
    )
    if copied is not None:
        reason += f" {copied.path} does not save them: {lacking[held[0].event.key]}."
    return Permission(Verdict.NO, reason, tuple(_copying_steps(broker, names, shlex.quote(question.path))), running)


def _held_losses(history: ClusterHistory, broker: int) -> list[Loss]:
    return [each for each in losses(history) if any(holder.broker_id == broker for holder in each.intact)]


def _copying_steps(broker: int, names: str, quoted_path: str) -> Iterator[str]:
    """How to save what a stopped broker holds of these partitions before it starts."""
    yield f"First copy the log dirs of broker {broker} for {names}, with meta.properties, to a folder COPY."
    start = f"kraft-audit may-i start {broker} {quoted_path} --copied DIR"
    yield f"Then take the records out of it: kraft-audit salvage {with_copy(quoted_path)} --out DIR; {start}"


def _may_keep_lost_records(question: Question, history: ClusterHistory, running: tuple[int, ...]) -> Permission | None:
    """Undecided, where the broker lay still when a leader was elected that may lack something: after a crash of that
    leader only its operator knows whether anything was lost. None where there is no such loss, or where a copy has what
    the broker holds of it."""
    broker = question.node_id
    saved = set[str]() if question.copied is None else {each.event.key for each in _held_losses(history, broker)}
    maybe = [loss for loss in losses_beside(history, broker) if loss.event.key not in saved]
    if not maybe:
        return None
    names = _listed_names(sorted({loss.event.name for loss in maybe}))
    event = maybe[-1].event
    reason = (
        f"Broker {broker} was down at {when(event.timestamp_ms)}, when broker {event.leader_id} began to lead "
        f"{event.name} and may have lacked records. Broker {broker} has followed no leader of {names} since, and may "
        "have them."
    )
    step = f"Copy the log dirs of broker {broker} for {names} first, unless you know that no leader lost power."
    return Permission(Verdict.UNDECIDED, reason, (step,), running)


def _restart(question: Question, history: ClusterHistory, running: tuple[int, ...]) -> Permission:
    """Outage where the ISR without it is smaller than min ISR: acks=all writes are refused meanwhile."""
    states, broker = partition_states(history), question.node_id
    short = _short_without(history, broker)
    if short:
        offline = sum(states.size_of("isr", row) == 1 for row in short)
        dark = f", and {offline} of them have no leader then" if offline else ""
        refused = _refused_text(states, short)
        reason = (
            f"Outage: without broker {broker} {refused} until it is back{dark}. A controlled shutdown loses nothing."
        )
        step = "Wait until their ISR has grown, or restart it when writes may stop: kafka-topics --bootstrap-server "
        step += f"{_address(history, [*running, broker])} --describe --under-replicated-partitions"
        return Permission(Verdict.NO, reason, (step,), running)
    return _start(question, history, running)


def _short_without(history: ClusterHistory, broker: int) -> list[int]:
    """Newest rows of partitions whose ISR is smaller than min ISR without the broker."""
    states = partition_states(history)
    rows = _rows(states, broker, "isr")
    short: list[int] = rows[states.size("isr")[rows] - 1 < states.effective_min_isr[rows]].tolist()
    return short


def _refused_text(states: PartitionStates, short: Sequence[int]) -> str:
    verb = "has" if len(short) == 1 else "have"
    return f"{_names(states, short)} {verb} an ISR below min ISR, so acks=all writes are refused"


def _start(question: Question, history: ClusterHistory, running: tuple[int, ...]) -> Permission:
    """Undecided where it may be elected uncleanly while another replica that holds what was acknowledged is away."""
    states, broker = partition_states(history), question.node_id
    path = shlex.quote(question.path)
    if (kept := _keeps_lost_records(question, history, running)) is not None:
        return kept
    if (emptied := _lacks_directory(question, history, running)) is not None:
        return emptied
    if (waited_for := _elects_who_lacks(question, history, running)) is not None:
        return waited_for
    if risky := led_uncleanly(history, broker, running):
        return unclean_start(question, history, risky, _names(states, risky), running)
    if (may_keep := _may_keep_lost_records(question, history, running)) is not None:
        return may_keep
    doubt = _what_replay_lacks(history)
    if doubt is not None:
        return Permission(Verdict.UNDECIDED, doubt, (f"kraft-audit check {path}",), running)
    reason = f"Broker {broker} can be elected only where it holds what was acknowledged."
    if question.copied is not None and (held := _held_losses(history, broker)):
        names = _listed_names([each.event.name for each in held])
        reason += f" It will truncate {names}: {question.copied.path} has what it held of lost records."
    return Permission(Verdict.YES, reason, (), running)


def _elects_who_lacks(question: Question, history: ClusterHistory, running: tuple[int, ...]) -> Permission | None:
    """No, where the last known leader runs, came back from a crash or with another disk, and nobody else is eligible:
    Kafka elects it as soon as any broker is unfenced (seen with 4.3.1), and the others truncate their logs to its."""
    states, broker = partition_states(history), question.node_id
    waiting: dict[int, list[int]] = {}
    named = _rows(states, broker, "replicas")
    for row in named[(states.size("isr")[named] == 0) & (states.size("elr")[named] == 0)].tolist():
        led = last_leader(history, row)
        if led is None or led == broker or led not in running:
            continue
        if led not in witnesses(history, row).members:
            waiting.setdefault(led, []).append(row)
    if not waiting:
        return None
    led, rows = next(iter(waiting.items()))
    names = _names(states, rows)
    reason = (
        f"Broker {led} led {names} last, runs, and may lack acknowledged records: it came back from a crash or with "
        f"another disk. Kafka elects it as soon as a broker is unfenced, and broker {broker} then truncates its log."
    )
    step = next(_copying_steps(broker, names, shlex.quote(question.path)))
    return Permission(Verdict.NO, reason, (f"{step} It may be the only full one.",), running)


def _lacks_directory(question: Question, history: ClusterHistory, running: tuple[int, ...]) -> Permission | None:
    """No, where the only copy of a partition is in a log dir that the broker does not have any more: with another disk
    in its place Kafka makes the partition anew, empty."""
    states, broker = partition_states(history), question.node_id
    lost: dict[str, list[int]] = {}
    placed, brokers = misplaced(history)
    for row in np.intersect1d(_rows(states, broker, "isr", "elr"), placed[brokers == broker]).tolist():
        directory = dict(zip(states.nodes("replicas", row), states.value("directories", row), strict=False))[broker]
        known = copies(history, row, question.stopped | question.gone)
        if broker in known.off_disk and not known.sure - question.gone - {broker}:
            lost.setdefault(directory, []).append(row)
    if not lost:
        return None
    directory = next(iter(lost))
    names = _names(states, [row for rows in lost.values() for row in rows])
    reason = (
        f"The only sure copy of {names} is in log dir {directory} of broker {broker}, which its last registration does "
        "not have. Started with another disk in its place, the broker leads with an empty log."
    )
    step = (
        f"Start it only with that disk: directory.id={directory} stands in its meta.properties. If the disk is lost, "
        f"so are the records: kraft-audit recover-plan {shlex.quote(question.path)}"
    )
    return Permission(Verdict.NO, reason, (step,), running)


def _what_replay_lacks(history: ClusterHistory) -> str | None:
    """Why the partitions that were replayed may not be all, or not as they are."""
    if not history.is_read or not history.is_replayed:
        return "No log could be replayed: what the brokers hold is not known."
    if quorum_standing(history).lacks_majority:
        return "The disks of too few controllers were read: what the others committed since is not known."
    if not history.is_complete:
        return "The log begins after offset 0 without a snapshot: partitions may be missing in what was replayed."
    if history.unknown_from is not None:
        return f"Records from offset {history.unknown_from} on are missing: partitions may have changed since."
    return None


def _names(states: PartitionStates, rows: Sequence[int]) -> str:
    return _listed_names(states.names(np.array(rows, np.int64)))


def _listed_names(names: Sequence[str]) -> str:
    shown: list[object] = [*names[:PARTITIONS_NAMED]]
    return listed([*shown, f"{len(names) - PARTITIONS_NAMED} more"] if len(names) > PARTITIONS_NAMED else shown)


def _address(history: ClusterHistory, running: Sequence[int], but: int | None = None) -> str:
    """host:port of a broker that runs, another one than `but`."""
    return broker_address(history, [broker for broker in running if broker != but]) or UNKNOWN_ADDRESS
