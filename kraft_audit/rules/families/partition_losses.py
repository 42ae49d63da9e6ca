"""Rules about what partitions may have lost: by leaders that were elected, and by brokers that came back uncleanly."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from kraft_audit.rules.cluster_history import ClusterHistory, unclean_election_enabled
from kraft_audit.rules.columns.broker_returns import still_eligible
from kraft_audit.rules.columns.log_batches import operation_ends
from kraft_audit.rules.columns.loss_holders import Loss, losses
from kraft_audit.rules.columns.loss_texts import LABEL_TEXTS, REASON_TEXTS, holder_text, loss_text, proof_text
from kraft_audit.rules.columns.nodes import broker_states, changed_within, status_text
from kraft_audit.rules.columns.partition_cases import partition_case
from kraft_audit.rules.columns.partition_states import Episode, PartitionStates, partition_states
from kraft_audit.rules.columns.witnesses import Label
from kraft_audit.rules.registry import rule
from kraft_audit.rules.rule_model import (
    Case,
    DeferredEvidence,
    Evidence,
    Thresholds,
    undecided,
)
from kraft_audit.text.readable import any_of, plural


@rule("KP020", control="durability", needs=("partition_changes", "broker_changes"))
def kp020(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    """A loss stays open, whatever the partition is now: a person acknowledges it."""
    for loss in losses(history):
        if not loss.grade.is_reported:
            continue
        event = loss.event
        if (unknown := history.unknown_before(event.offset)) is not None:
            case = undecided(event.name, unknown, from_offset=event.offset, from_ms=event.timestamp_ms)
            yield case._replace(key=event.key, summary=f"{loss_text(loss)}: {unknown}")
            continue
        yield Case(
            event.name,
            loss_text(loss),
            from_offset=event.offset,
            from_ms=event.timestamp_ms,
            epoch=event.leader_epoch,
            evidence=DeferredEvidence(_loss_evidence, partition_states(history), loss),
            severity=loss.severity,
            what_to_do=_after_loss(history, loss),
            key=event.key,
        )


def _loss_evidence(states: PartitionStates, loss: Loss) -> tuple[Evidence, ...]:
    """How the leader ceased to hold everything, its election, and who else held it."""
    event, evidence = loss.event, []
    if event.own is not None:
        evidence.append(
            Evidence(
                f"broker {event.leader_id} {REASON_TEXTS[event.own.reason]}: {states.describe(event.own.row)}",
                offset=event.own.offset,
                epoch=event.own.leader_epoch,
                timestamp_ms=event.own.timestamp_ms,
                node_id=event.leader_id,
            )
        )
    before = states.previous(event.row)
    evidence.append(
        Evidence(
            f"{LABEL_TEXTS[event.label]}: {states.describe(event.row)}",
            offset=event.offset,
            epoch=event.leader_epoch,
            timestamp_ms=event.timestamp_ms,
            node_id=event.leader_id,
            before=None if before is None else states.describe(before),
            after=states.describe(event.row),
        )
    )
    if (proven := proof_text(loss)) is not None:
        evidence.append(Evidence(proven, node_id=event.leader_id))
    for holder in loss.holders:
        text = f"broker {holder.broker_id}: {holder_text(holder)}"
        evidence.append(Evidence(text, offset=holder.until_offset, node_id=holder.broker_id))
    return tuple(evidence)


def _after_loss(history: ClusterHistory, loss: Loss) -> str:
    """What saves the records now, or that a person has to accept the loss; the setting that let it happen."""
    event = loss.event
    if loss.intact:
        brokers = [holder.broker_id for holder in loss.intact]
        text = f"Do not start or wipe broker {any_of(brokers)}: copy the log dirs of {event.name} from there first."
    else:
        text = (
            "Compare what producers were acknowledged with what is there, in the time and leader epochs named; then "
            "acknowledge the loss in waivers.yaml."
        )
    if event.label is Label.UNCLEAN_ELECTION:
        if unclean_election_enabled(history, event.topic):
            return f"{text} Turn unclean.leader.election.enable off for topic {event.topic}."
        return f"{text} Unclean election is off for topic {event.topic} now: somebody asked for this one."
    return text


@rule("KP017", control="durability", needs=("partition_changes", "broker_changes"))
def kp017(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    states = partition_states(history)
    for row in states.rows_of(states.changes.exists & states.changes.is_election("last_known")).tolist():
        leader, offset = int(states.leader[row]), int(states.from_offset[row])
        known = broker_states(history).get(leader)
        state = None if known is None else known.at(offset)
        if state is None or not (state["fenced"] or not state["exists"]):
            continue
        status = status_text(history, leader, offset)
        if (unknown := history.unknown_before(offset)) is not None:
            yield undecided(states.name(row), f"{status}: {unknown}", from_offset=offset)
            continue
        end = row + 1 if row < states.newest_row(row) else None
        fact = Evidence(status, offset=state["from_offset"])
        yield partition_case(states, Episode(row, end), f"the last known leader was elected, and is {status}", fact)


FALLS_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class _Return:
    """A broker that came back, the rows by which it fell out of ISR or ELR, and the row of each partition, where there
    is one, with which it was back.

    `registration` is the offset of the registration in the same operation, -1 where none was read.
    """

    broker: int
    registration: int
    falls: list[int]
    backs: list[int | None]

    @property
    def end(self) -> int | None:
        """The row with which it was back everywhere."""
        known = [row for row in self.backs if row is not None]
        return None if len(known) < len(self.backs) else known[-1]


def _returns(history: ClusterHistory) -> Iterator[_Return]:
    states = partition_states(history)
    falls: dict[tuple[int, int], list[int]] = defaultdict(list)
    is_certain = states.in_order(states.changes.is_cause("unclean_shutdown"))
    fallen = states.rows_of(states.changes.may_be_cause("unclean_shutdown"))
    ends = operation_ends(history, states.from_offset[fallen])
    eligible = still_eligible(history)[0] if len(fallen) else frozenset()
    for row, end in zip(fallen.tolist(), ends.tolist(), strict=True):
        broker = states.value("cause_broker_id", row)
        registration = changed_within(history, broker, int(states.from_offset[row]), end)
        # A leader may have removed it a moment before: that is an operation of its own.
        if (broker, registration) in eligible:
            continue
        if registration is not None or is_certain[row]:
            falls[broker, -1 if registration is None else registration].append(row)
    for (broker, registration), rows in sorted(falls.items()):
        rows.sort(key=lambda row: int(states.from_offset[row]))
        backs = [_back(states, row, broker) for row in rows]
        backs.sort(key=lambda row: -1 if row is None else int(states.from_offset[row]))
        yield _Return(broker, registration, rows, backs)


def _back(states: PartitionStates, row: int, broker: int) -> int | None:
    """The first row with which the broker is in sync again, or the partition is gone or no longer its own."""
    for later in range(row + 1, states.newest_row(row) + 1):
        is_its = states.exists[later] and broker in states.nodes("replicas", later)
        if not is_its or broker in states.nodes("isr", later):
            return later
    return None


@rule(
    "KP008",
    control="durability",
    needs=("partition_changes", "broker_changes", "batches"),
)
def kp008(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    """From the first fall until the broker is in sync again wherever it fell out."""
    states = partition_states(history)
    is_certain = states.in_order(states.changes.is_cause("unclean_shutdown"))
    for each in _returns(history):
        names = list(dict.fromkeys(map(states.name, each.falls)))
        shown = ", ".join(names[:FALLS_SHOWN]) + " …" * (len(names) > FALLS_SHOWN)
        came = "its registration was not read"
        if each.registration >= 0:
            came = f"registration at offset {each.registration}"
        if not is_certain[each.falls].any():
            came += ", unless it ended cleanly and a leader had just removed it"
        fallen_out = f"out of ISR or ELR of {plural(len(names), 'partition')}"
        first, end = each.falls[0], each.end
        yield Case(
            f"broker {each.broker}",
            f"came back uncleanly ({came}): {fallen_out}: {shown}",
            from_offset=int(states.from_offset[first]),
            to_offset=None if end is None else int(states.from_offset[end]),
            from_ms=int(states.timestamp_ms[first]),
            to_ms=None if end is None else int(states.timestamp_ms[end]),
            evidence=tuple(_fall(states, row) for row in each.falls[:FALLS_SHOWN]),
            key=f"broker {each.broker} {each.registration}",
        )


def _fall(states: PartitionStates, row: int) -> Evidence:
    before, after = states.previous(row), states.describe(row)
    return Evidence(
        f"{states.name(row)}: {after}",
        offset=int(states.from_offset[row]),
        before=None if before is None else states.describe(before),
        after=after,
    )
