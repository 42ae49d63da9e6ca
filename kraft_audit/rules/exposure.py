"""What exposes a partition: the conditions of KP001, KP002 and KP005, which reports count by the minute as well.

The replay marks the same states for the lake as it makes them (`exposure_changes`); tests hold the two to each other.
"""

from __future__ import annotations

from kraft_audit.rules.node_lists import Mask, union_sizes
from kraft_audit.rules.partition_states import PartitionStates


def alone(states: PartitionStates) -> Mask:
    """One replica alone in ISR and ELR together though more are assigned: KP001."""
    told = states.told
    one = union_sizes(told.lists["isr"], told.lists["elr"]) == 1
    return states.in_order(told.exists & one & (told.size("replicas") > 1))


def offline(states: PartitionStates) -> Mask:
    """No leader: KP002."""
    return states.in_order(states.told.exists & (states.told.leader == -1))


def under_min_isr(states: PartitionStates) -> Mask:
    """ISR below the effective min ISR: KP005."""
    told = states.told
    return states.in_order(told.exists & (told.size("isr") < told.effective_min_isr))


def exposed(states: PartitionStates) -> Mask:
    """Any of the three."""
    return alone(states) | offline(states) | under_min_isr(states)
