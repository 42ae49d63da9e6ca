"""What if those brokers crashed uncleanly now: who goes offline, who loses acknowledged data, who cannot take writes.

By the election rules as shipped (PartitionChangeBuilder, Kafka 4.3.0): a crashed broker is fenced,
falls out of every ISR, and when it returns out of every ELR. Acknowledged data is on the ISR and the ELR; it is lost
when all of them crash without having flushed, and given up where a replica without it is elected uncleanly.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from kraft_audit.capture.continuity import run_begins
from kraft_audit.rules.cluster_history import ClusterHistory, elr_level, unclean_election_enabled
from kraft_audit.rules.columns.frame import distinct, holders, numbered
from kraft_audit.rules.columns.nodes import broker_states, is_up, racks
from kraft_audit.rules.columns.partition_states import PartitionStates, offline, partition_states, under_min_isr
from kraft_audit.tables.number_arrays import Mask

_SPREAD: Final = 1 << 32


@dataclass(frozen=True, slots=True)
class PartitionOutcome:
    """What becomes of one partition; `leader` is who leads then, -1 for none."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    leader: int
    isr_after: tuple[int, ...]
    elr_after: tuple[int, ...]
    min_isr: int
    goes_offline: bool
    loses_data: bool
    falls_under_min_isr: bool
    unclean_election: bool = False


@dataclass(frozen=True, slots=True)
class _After:
    """A partition when the brokers are gone; `live_isr` are the in-sync replicas that a producer's write reaches."""

    leader: int
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    live_isr: tuple[int, ...]
    is_unclean: bool = False


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The outcome for a cluster: only affected partitions are listed.

    What is so already, whatever crashes, stands beside it: `fenced_brokers` are those of the lost ones that are away,
    the counts are of all partitions.
    """

    lost_brokers: tuple[int, ...]
    unknown_brokers: tuple[int, ...]
    partition_count: int
    outcomes: tuple[PartitionOutcome, ...]
    fenced_brokers: tuple[int, ...] = ()
    already_offline_count: int = 0
    already_under_min_isr_count: int = 0

    @property
    def offline_count(self) -> int:
        return sum(outcome.goes_offline for outcome in self.outcomes)

    @property
    def loss_count(self) -> int:
        return sum(outcome.loses_data for outcome in self.outcomes)

    @property
    def under_min_isr_count(self) -> int:
        return sum(outcome.falls_under_min_isr for outcome in self.outcomes)


def brokers_of_racks(history: ClusterHistory, names: Collection[str]) -> tuple[int, ...]:
    """The registered brokers of the given racks."""
    return tuple(sorted(broker for broker, rack in racks(history).items() if rack in names))


def lose(history: ClusterHistory, brokers: Iterable[int]) -> WhatIf:
    """What happens to every partition if `brokers` crash uncleanly together, as of the end of the log."""
    states = partition_states(history)
    changes = states.changes
    lost = tuple(sorted(set(brokers)))
    registered = {broker: known.newest for broker, known in broker_states(history).items() if known.newest["exists"]}
    current = states.is_last & states.exists
    touched = current & (
        states.in_order(holders(changes.lists["isr"], lost) | holders(changes.lists["elr"], lost))
        | _is_in(states.leader, lost)
    )
    has_elr = elr_level(history) > 0
    outcomes = [_outcome(history, states, row, frozenset(lost), has_elr) for row in np.flatnonzero(touched).tolist()]
    happens = [o for o in outcomes if o.goes_offline or o.loses_data or o.falls_under_min_isr]
    happens.sort(key=lambda o: (not o.loses_data, not o.goes_offline, o.topic, o.partition))
    return WhatIf(
        lost,
        tuple(broker for broker in lost if broker not in registered),
        int(current.sum()),
        tuple(happens),
        tuple(broker for broker in lost if broker in registered and registered[broker]["fenced"]),
        int((current & offline(states)).sum()),
        int((current & under_min_isr(states)).sum()),
    )


def _outcome(
    history: ClusterHistory, states: PartitionStates, row: int, lost: frozenset[int], has_elr: bool
) -> PartitionOutcome:
    isr, elr, replicas = (tuple(states.nodes(name, row)) for name in ("isr", "elr", "replicas"))
    leader, min_isr = int(states.leader[row]), int(states.effective_min_isr[row])
    holders = frozenset(isr) | frozenset(elr)
    if lost.isdisjoint((*isr, leader)):
        after = _After(leader, isr, elr, isr)  # a broker that is in no ISR is fenced without a change of the partition
    else:
        live = tuple(broker for broker in replicas if broker not in lost and is_up(history, broker))
        isr_left = tuple(broker for broker in isr if broker not in lost)
        elr_left = _elr_after(isr, elr, isr_left, min_isr) if has_elr else elr
        after = _elected(leader, live, isr_left, elr_left, has_elr)
        if after.leader == -1 and live and unclean_election_enabled(history, states.topic(row)):
            after = _After(live[0], live[:1], (), live[:1], is_unclean=True)
        elif not after.isr and not has_elr:
            # Of several that crash together the last to be fenced stays, and no capture shows which that will be.
            after = replace(after, isr=isr)
    return PartitionOutcome(
        topic=states.topic(row),
        partition=int(states.partition[row]),
        replicas=replicas,
        isr=isr,
        elr=elr,
        leader=after.leader,
        isr_after=after.isr,
        elr_after=after.elr,
        min_isr=min_isr,
        goes_offline=leader != -1 and after.leader == -1,
        loses_data=bool(holders) and (holders <= lost or (after.is_unclean and after.leader not in holders)),
        falls_under_min_isr=len(isr) >= min_isr > len(after.live_isr),
        unclean_election=after.is_unclean,
    )


def _elected(
    leader: int, live: tuple[int, ...], isr_left: tuple[int, ...], elr_left: tuple[int, ...], has_elr: bool
) -> _After:
    """A clean election (PartitionChangeBuilder.electLeader).

    A left-over ELR counts with the feature off too, and is given up then."""
    able = [broker for broker in live if broker in (isr_left or elr_left)]
    chosen = leader if leader in able else next(iter(able), -1)
    if not isr_left and chosen in elr_left:
        isr_left, elr_left = (chosen,), tuple(broker for broker in elr_left if broker != chosen)
    return _After(chosen, isr_left, elr_left if has_elr else (), isr_left)


def _elr_after(isr: tuple[int, ...], elr: tuple[int, ...], isr_left: tuple[int, ...], min_isr: int) -> tuple[int, ...]:
    """As PartitionChangeBuilder computes the ELR: who leaves the ISR below min ISR stays eligible until it returns."""
    if len(isr_left) >= min_isr:
        return ()
    return tuple(broker for broker in dict.fromkeys((*elr, *isr)) if broker not in isr_left)


def _is_in(values: npt.NDArray[np.int64], nodes: tuple[int, ...]) -> Mask:
    mask: Mask = np.isin(values, nodes)
    return mask


@dataclass(frozen=True, slots=True)
class SmallestLoss:
    """The smallest set of brokers whose unclean crash together loses acknowledged data.

    `brokers` is None where no partition holds data. `partition_count`: how many partitions that set alone loses.
    """

    brokers: tuple[int, ...] | None
    partition_count: int
    example: str | None


def smallest_loss(history: ClusterHistory) -> SmallestLoss:
    """The smallest holder set over all partitions: a crash loses data exactly if it covers one partition's ISR ∪ ELR.

    Among sets of that size the one that loses most partitions is given.
    """
    states = partition_states(history)
    keys = _holder_keys(states)
    if not len(keys):
        return SmallestLoss(None, 0, None)
    row_of_key = keys // _SPREAD
    starts = np.flatnonzero(run_begins(row_of_key))
    lengths = np.diff(np.append(starts, len(keys)))
    size = int(lengths.min())
    smallest = starts[lengths == size]
    members = keys[smallest[:, None] + np.arange(size)] % _SPREAD
    number = numbered(*members.T)
    _, first, counts = np.unique(number, return_index=True, return_counts=True)
    best = min(range(len(first)), key=lambda place: (-int(counts[place]), members[first[place]].tolist()))
    brokers = tuple(members[first[best]].tolist())
    return SmallestLoss(brokers, int(counts[best]), states.name(int(row_of_key[smallest[first[best]]])))


def _holder_keys(states: PartitionStates) -> npt.NDArray[np.int64]:
    """(row, broker) of every member of ISR or ELR in the newest rows as one number each, sorted, each once."""
    row_of_change = states.row_of_change()
    wanted = (states.is_last & states.exists)[row_of_change]
    parts = []
    for name in ("isr", "elr"):
        lists = states.changes.lists[name]
        places = np.flatnonzero(wanted[lists.row_of_value])
        parts.append(row_of_change[lists.row_of_value[places]] * _SPREAD + lists.values[places])
    return distinct(np.concatenate(parts))
