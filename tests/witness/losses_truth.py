"""What the audit announces as lost, beside what a run really lost: `data_lost` is a witness of the witnesses.

A run's truth says which records an elected leader lacks, why, and which disks hold them. The log alone must announce
each such election, must not call another disk's copy whole that is not, and must not call it a mere crash where others
were passed over. Who the sure holders are is compared record by record with a model that shares no code with the audit.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator
from operator import itemgetter
from typing import Any, Final

import numpy as np

from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.columns.loss_holders import Grade, HolderState, Loss, losses
from kraft_audit.rules.columns.nodes import broker_states
from kraft_audit.rules.columns.partition_states import partition_states
from kraft_audit.rules.columns.sure_copies import copies, surely_beside
from kraft_audit.rules.columns.walked_partitions import keeps_witnesses
from kraft_audit.rules.columns.witnesses import Label, loss_events, witnesses
from kraft_codec.text.java_text import uuid_bytes, uuid_text
from tests.builders.sure_holders import MOMENTS, SureHolders
from tests.witness.played import Played
from tests.witness.truth import Truth

Election = tuple[str, int, int]
"""Topic id, partition, leader epoch."""
RISKY: Final = frozenset({*Label} - {Label.CAME_BACK_ALONE, Label.BEFORE_THE_LOG})
"""Elections that the log itself shows to be lossy, and a directory that was replaced, whatever was in it."""
CLOCKS_MS: Final = 1_000
"""Controllers stamp records with clocks that differ so much."""
TRUNCATES_IN_MS: Final = 5_000
REGISTERS_IN_MS: Final = 10_000
"""A broker that starts may follow by the metadata that it reads for so long before its registration is written."""
NEVER_HELD: Final = "never held"
WRITTEN_ALONE: Final = 100
"""So many records a leader that was cut off may write that nobody acknowledges."""


def lost_records(played: Played, counts: Counter[str]) -> Iterator[str]:
    """Every disagreement about what was lost, of the log that was captured and committed."""
    truth, history = played.truth, played.history
    found = {_election(loss): loss for loss in losses(history)}
    counts["loss events"] += len(found)
    yield from _sure_holders(history, played.holders, counts)
    yield from _copies_beside(history, counts)
    yield from _events(history, played.holders)
    yield from _grades(found, played.holders, counts)
    yield from _proofs(found, truth, counts)
    for line in truth.lines["data_lost"]:
        # A run that does not follow losses names the epoch in which the leader took over.
        election_offset = line.get("election_offset")
        if election_offset is None:
            yield from _announced_at_all(truth, line, found, counts, played.reached)
        elif _begins_at(history) < election_offset < played.reached:
            yield from _loss(line, found, counts, _harmed(truth, line["time_ms"]))
    if not truth.lines["data_lost"]:
        yield from _false_alarms(found)
    if played.reached >= truth.committed_offset:
        yield from _copies(truth, found, counts)


def passed_over_for_nothing(played: Played) -> Iterator[str]:
    """Losses of a run without power cuts in which others are said to hold more, though the election was no unclean one
    and passed over nobody who surely held everything."""
    for loss in losses(played.history):
        event = loss.event
        passing = played.holders.events[uuid_bytes(event.topic_id), event.partition, event.leader_epoch]
        state = played.truth.partitions[(event.topic_id, event.partition), event.offset]
        is_unclean = state["leader_recovery_state"] == "RECOVERING"
        if not event.is_own_crash and not is_unclean and not passing.others:
            yield f"{_name(_election(loss))} passed over nobody: {event.label}"


def reported_losses(played: Played) -> tuple[set[str], set[str]]:
    """The partitions of which a loss must be reported, and of which it may be.

    Disks may prove what the log takes for a mere crash, or rule out what it doubts.
    """
    lost = {(line["topic_id"], line["partition"], line.get("leader_epoch")) for line in played.truth.lines["data_lost"]}
    ruled_out = {_election(loss) for loss in losses(played.history) if loss.grade is Grade.RULED_OUT}
    must, may = set(), set()
    for (topic_id, index, epoch), passing in played.holders.events.items():
        election = (uuid_text(topic_id), index, epoch)
        crashes = [passing.is_a_crash_at(moment) for moment in MOMENTS]
        if not any(crashes) and election not in ruled_out - lost:
            must.add(passing.name)
        if not all(crashes) or election in lost:
            may.add(passing.name)
    return must, may


def _election(loss: Loss) -> Election:
    return loss.event.topic_id, loss.event.partition, loss.event.leader_epoch


def _begins_at(history: ClusterHistory) -> int:
    """The offset after which every change of a partition was read."""
    states = partition_states(history)
    return int(states.from_offset.min()) if len(states) else 0


def _name(election: Election) -> str:
    return f"{election[0]}-{election[1]} in leader epoch {election[2]}"


def _grades(found: dict[Election, Loss], holders: SureHolders, counts: Counter[str]) -> Iterator[str]:
    """Graded as a crash where it was one at the end of the operation, or of the batch: a log names only batches."""
    for (topic_id, index, epoch), passing in holders.events.items():
        loss = found.get((uuid_text(topic_id), index, epoch))
        if loss is None:
            continue
        counts[f"graded {loss.grade}"] += 1
        wanted = {passing.is_a_crash_at(moment) for moment in MOMENTS}
        is_by_disks = loss.grade in (Grade.PROVEN, Grade.RULED_OUT)
        if not is_by_disks and (loss.grade is Grade.UNFLUSHED) not in wanted:
            yield f"{_name(_election(loss))} is graded {loss.grade}, though {passing}"


def _proofs(found: dict[Election, Loss], truth: Truth, counts: Counter[str]) -> Iterator[str]:
    """What disks prove is part of what was lost, and nothing was lost below where they say that a loss begins."""
    lost: dict[Election, set[tuple[int, int]]] = defaultdict(set)
    for line in truth.lines["data_lost"]:
        of_line = lost[line["topic_id"], line["partition"], line["leader_epoch"]]
        for part in line.get("ranges", ()):
            of_line.update((part["leader_epoch"], each) for each in range(part["from_offset"], part["to_offset"]))
    for election, loss in found.items():
        true, proof = lost.get(election, set()), loss.proof
        said = {(each.leader_epoch, o) for each in proof.ranges for o in range(each.from_offset, each.to_offset)}
        counts["proven records"] += len(said)
        beyond = set() if proof.is_shared else said - _without_gaps(true)
        # A later leader may bring back what an election lost; the ledger counts it once.
        before = {
            each for other, of in lost.items() if other[:2] == election[:2] and other[2] < election[2] for each in of
        }
        counts["proven records that were lost before"] += len(beyond & _without_gaps(before))
        if beyond - _without_gaps(before):
            wrong = sorted(beyond - _without_gaps(before))[:3]
            yield f"{_name(election)} did not lose {wrong}, which is said to be proven"
        if true:
            first = min(offset for _, offset in true)
            counts[f"bounds {_compared(proof.from_offset, first)}"] += 1
        if proof.from_offset is not None and any(offset < proof.from_offset for _, offset in true):
            yield f"{_name(election)} lost {min(o for _, o in true)}, below {proof.from_offset}"
        if loss.grade is Grade.RULED_OUT and true:
            yield f"{_name(election)} lost {sorted(true)[:3]}, and is ruled out"


def _without_gaps(records: set[tuple[int, int]]) -> set[tuple[int, int]]:
    """Also what lies between two records of one epoch, and in the last one after them: what a leader that was cut off
    writes is lost record by record, as it is acknowledged, and all that its watermark passed could be read."""
    offsets: dict[int, list[int]] = defaultdict(list)
    for epoch, offset in records:
        offsets[epoch].append(offset)
    ends = {epoch: max(of) + 1 for epoch, of in offsets.items()}
    if ends:
        ends[max(ends)] += WRITTEN_ALONE
    return {(epoch, each) for epoch, of in offsets.items() for each in range(min(of), ends[epoch])}


def _compared(said: int | None, true: int) -> str:
    return "unknown" if said is None else "exact" if said == true else "below" if said < true else "above"


def _false_alarms(found: dict[Election, Loss]) -> Iterator[str]:
    """Where nothing was lost only elections that Kafka knows to be lossy may be graded above a crash, and a leader that
    came back from one while another sure holder was there."""
    for election, loss in found.items():
        event = loss.event
        is_lossy = event.label in RISKY or event.witnesses - {event.leader_id}
        if loss.grade is not Grade.UNFLUSHED and not is_lossy:
            yield f"{_name(election)} is graded {loss.grade}: {event.label}, and nothing was lost"


# Each loss of the truth


def _harmed(truth: Truth, until_ms: int) -> set[int]:
    """The brokers of which a directory was emptied, replaced or failed: of a stopped one no record says so."""
    return {line["broker"] for line in truth.lines["fault"] if "broker" in line and line["time_ms"] <= until_ms}


def _loss(line: dict[str, Any], found: dict[Election, Loss], counts: Counter[str], harmed: set[int]) -> Iterator[str]:
    election = (line["topic_id"], line["partition"], line["leader_epoch"])
    counts["losses"] += 1
    counts["lost records"] += line["to_offset"] - line["from_offset"]
    loss = found.get(election)
    if loss is None:
        yield f"lost records of {_name(election)} are not announced: {line['causes']}"
        return
    counts[f"losses {loss.grade}"] += 1
    event = loss.event
    counts["exact offsets"] += event.offset == line["election_offset"]
    if (event.offset, event.leader_id) != (line["election_offset"], line["leader"]):
        yield (
            f"the loss of {_name(election)} is broker {line['leader']}'s at {line['election_offset']}, announced is "
            f"broker {event.leader_id}'s at {event.offset}"
        )
    if NEVER_HELD in line["causes"] and all(each.grade is Grade.UNFLUSHED for each in _since_elected(loss, found)):
        yield f"{_name(election)} passed over what broker {event.leader_id} never held: graded {loss.grade}"
    if loss.grade is Grade.UNFLUSHED and not event.is_own_crash:
        yield f"{_name(election)} is no crash of broker {event.leader_id}: graded {loss.grade}"
    whole = {holder["broker"] for holder in line["holders"] if holder["holds_all"]}
    some = {holder["broker"] for holder in line["holders"]}
    # What was in doubt by an election that never took place, as its leader was dead, is lost by the next one.
    passed = {
        each.event.leader_id for each in found.values() if _election(each)[:2] == election[:2] and each is not loss
    }
    for holder in loss.holders:
        is_there = holder.then in (HolderState.STOPPED, HolderState.GONE)
        if is_there and holder.is_witness:
            counts["holders"] += 1
            if holder.broker_id not in whole and holder.broker_id not in harmed | passed:
                yield f"{_name(election)}: broker {holder.broker_id}, {holder.then}, lacks some of what was lost"
        elif is_there:
            counts["earlier holders"] += 1
            counts["earlier holders with some"] += holder.broker_id in some
            counts["earlier holders with all"] += holder.broker_id in whole
        else:
            counts["down holders"] += 1
            counts["down holders with all"] += holder.broker_id in whole


def _since_elected(loss: Loss, found: dict[Election, Loss]) -> Iterator[Loss]:
    """The loss and those before it of one leader, no other one between: an elected broker that was dead when it was
    elected loses nothing until a later election, and the first one is said to pass the others over."""
    of_partition = sorted(
        (each for each in found.values() if _election(each)[:2] == _election(loss)[:2]),
        key=lambda each: -each.event.leader_epoch,
    )
    for each in of_partition:
        if each.event.leader_epoch <= loss.event.leader_epoch:
            if each.event.leader_id != loss.event.leader_id:
                return
            yield each


def _announced_at_all(
    truth: Truth, line: dict[str, Any], found: dict[Election, Loss], counts: Counter[str], reached: int
) -> Iterator[str]:
    """Whether an event of that leader, or of one before it, stands at or below the epoch in which it took over."""
    subject, epoch = (line["topic_id"], line["partition"]), line.get("leader_epoch")
    if epoch is None or not any(
        each["leader_epoch"] == epoch and each["offset"] < reached
        for each in truth.lines["partition"]
        if (each["topic_id"], each["partition"]) == subject
    ):
        return
    counts["losses"] += 1
    if not any(key[:2] == subject and key[2] <= epoch for key in found):
        yield f"lost records of {_name((*subject, epoch))} are not announced"


# What became of the copies


def _copies(truth: Truth, found: dict[Election, Loss], counts: Counter[str]) -> Iterator[str]:
    """A holder that is said to be intact has truncated nothing, and one that is gone truncated when it came back."""
    gone_ms = {
        ((line["topic_id"], line["partition"], line["leader_epoch"]), line["broker"]): line["time_ms"]
        for line in reversed(truth.lines["copy_gone"])
    }
    accidents = {(line["broker"], line["time_ms"]) for line in truth.lines["fault"] if "broker" in line}
    append_ms = {line["offset"]: line["append_ms"] for kind in ("partition", "metadata") for line in truth.lines[kind]}
    # A controller whose clock is ahead by so much wrote the election.
    ahead_ms = {
        (line["topic_id"], line["partition"], line["leader_epoch"]): max(0, line["election_ms"] - line["time_ms"])
        for line in truth.lines["data_lost"]
        if "election_ms" in line
    }
    held = {
        ((line["topic_id"], line["partition"], line["leader_epoch"]), holder["broker"])
        for line in truth.lines["data_lost"]
        for holder in line.get("holders", ())
    }
    for election, loss in found.items():
        for holder in loss.holders:
            key = election, holder.broker_id
            if key not in held or not holder.then.is_intact:
                continue
            counts[f"copies {holder.now}"] += 1
            if holder.now is HolderState.DOWN and key in gone_ms:
                # Nobody is told that a broker which was killed was started for a moment, or that its disk was emptied.
                counts["copies down that are gone"] += 1
            elif holder.now.is_intact and key in gone_ms and (holder.broker_id, gone_ms[key]) not in accidents:
                yield f"{_name(election)}: broker {holder.broker_id} is said to be {holder.now} and has truncated"
            elif holder.now is HolderState.GONE and key in gone_ms:
                late_ms = gone_ms[key] + ahead_ms.get(election, 0) - append_ms[holder.until_offset]
                counts["copies gone as said"] += -CLOCKS_MS <= late_ms <= TRUNCATES_IN_MS
                # It may have run without a registration, or lost its directory: nobody is told.
                counts["copies gone long before"] += late_ms < -REGISTERS_IN_MS


# Who the sure holders are


def _sure_holders(history: ClusterHistory, holders: SureHolders, counts: Counter[str]) -> Iterator[str]:
    states = partition_states(history)
    kept = {(uuid_text(topic_id), index): rows for (topic_id, index), rows in holders.kept.items()}
    until = states.next_offset
    for row in range(len(states)):
        subject = (str(states.value("topic_id", row)), int(states.partition[row]))
        if not states.exists[row] or subject not in kept:
            continue
        counts["sure holders"] += 1
        # What the audit says holds until the partition's next record.
        offset = int(until[row])
        wanted = kept[subject][bisect_left(kept[subject], offset, key=itemgetter(0)) - 1][1]
        given = witnesses(history, row).members
        name = f"{states.topic(row)}-{subject[1]}"
        if keeps_witnesses(history)[row]:
            counts["sure holders without a walk"] += 1
            if not wanted.issuperset(states.nodes("isr", row)):
                yield f"the ISR of {name} from {int(states.from_offset[row])} on are sure holders, said without a walk"
        if wanted != given:
            yield f"sure holders of {name} from {int(states.from_offset[row])} on are {set(wanted)}, said {set(given)}"
            return


def _copies_beside(history: ClusterHistory, counts: Counter[str]) -> Iterator[str]:
    """What is said of all partitions at once is what each would say by itself."""
    for broker in broker_states(history):
        for stopped in (frozenset[int](), frozenset({broker + 1})):
            for row in np.flatnonzero(surely_beside(history, broker, stopped, stopped)).tolist():
                counts["copies without a walk"] += 1
                if not copies(history, row, stopped).sure - stopped - {broker}:
                    yield f"a copy of {partition_states(history).name(row)} beside broker {broker}, said without a walk"


def _events(history: ClusterHistory, holders: SureHolders) -> Iterator[str]:
    wanted = {
        (uuid_text(topic_id), index, epoch): (passing.offset, passing.leader)
        for (topic_id, index, epoch), passing in holders.events.items()
    }
    given = {
        (event.topic_id, event.partition, event.leader_epoch): (event.offset, event.leader_id)
        for event in loss_events(history)
    }
    for key in sorted(wanted.keys() | given.keys()):
        if wanted.get(key) != given.get(key):
            yield f"loss event of {_name(key)} is (offset, leader) {wanted.get(key)}, said {given.get(key)}"
