"""What `whatif` and `recover-plan` print."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Final, TypeVar

from kraft_audit.losses.replica_disks import ReplicaLog
from kraft_audit.recovery.crash_forecast import PartitionOutcome, SmallestLoss, WhatIf
from kraft_audit.recovery.leaderless_partitions import Choice, RecoveryPlan
from kraft_audit.rules.columns.partition_states import ids_text
from kraft_audit.text.readable import and_more, when

_Subject = TypeVar("_Subject", PartitionOutcome, RecoveryPlan)
GROUPS_LISTED: Final = 20
GROUP_MEMBERS_NAMED: Final = 4
"""Of a group with more partitions, so many are named."""
CHOICE_INDENT: Final = 13
"""Where the text of a partition's choice begins, after who chooses."""


def whatif_lines(forecast: WhatIf, smallest: SmallestLoss, *, show_all: bool = False) -> Iterator[str]:
    """What a crash would do, the worst first; partitions to which the same happens in one line, unless `show_all`."""
    lost = " ".join(map(str, forecast.lost_brokers))
    noun = "brokers" if len(forecast.lost_brokers) > 1 else "broker"
    yield f"if {noun} {lost} crashed uncleanly now, of {forecast.partition_count} partitions"
    if forecast.unknown_brokers:
        yield f"  not registered: {' '.join(map(str, forecast.unknown_brokers))}"
    if forecast.fenced_brokers:
        are = "is" if len(forecast.fenced_brokers) == 1 else "are"
        yield f"  {' '.join(map(str, forecast.fenced_brokers))} {are} fenced already"
    yield f"  {forecast.loss_count} lose acknowledged records unless the disks come back whole"
    yield f"  {forecast.offline_count} go offline{_already(forecast.already_offline_count)}"
    already = _already(forecast.already_under_min_isr_count)
    yield f"  {forecast.under_min_isr_count} fall under min ISR{already}: acks=all producers are refused"
    groups = _groups(forecast.outcomes, _outcome_text, show_all)
    width = max((len(names) for names, _ in groups), default=0)
    for names, members in groups:
        yield f"    {names:<{width}}   {_outcome_text(members[0])}"
    yield from _rest(forecast.outcomes, groups)
    yield smallest_line(smallest)


def _already(count: int) -> str:
    return f", {count} more {'is' if count == 1 else 'are'} already" if count else ""


def smallest_line(smallest: SmallestLoss) -> str:
    """The weakest place of the cluster in one line."""
    if smallest.brokers is None:
        return "no partition holds acknowledged records"
    count = len(smallest.brokers)
    who = f"broker {smallest.brokers[0]}" if count == 1 else f"brokers {' '.join(map(str, smallest.brokers))} together"
    noun = "partition" if smallest.partition_count == 1 else "partitions"
    return f"the smallest crash that loses data: {who} ({smallest.partition_count} {noun}, such as {smallest.example})"


def _groups(
    partitions: Sequence[_Subject], key: Callable[[_Subject], Hashable], show_all: bool
) -> list[tuple[str, list[_Subject]]]:
    """Partitions of one key with their names; with `show_all` each by itself, else the first groups."""
    groups: dict[Hashable, list[_Subject]] = {}
    for number, partition in enumerate(partitions):
        groups.setdefault(number if show_all else key(partition), []).append(partition)
    listed = list(groups.values()) if show_all else list(groups.values())[:GROUPS_LISTED]
    return [(_names(members), members) for members in listed]


def _names(members: Sequence[PartitionOutcome | RecoveryPlan]) -> str:
    names = [f"{member.topic}-{member.partition}" for member in members[:GROUP_MEMBERS_NAMED]]
    return " ".join(names) + and_more(len(members) - GROUP_MEMBERS_NAMED)


def _rest(partitions: Sequence[_Subject], groups: Sequence[tuple[str, list[_Subject]]]) -> Iterator[str]:
    left = len(partitions) - sum(len(members) for _, members in groups)
    if left:
        yield f"    {left} more partition{'s' * (left > 1)}: --all"


def _outcome_text(outcome: PartitionOutcome) -> str:
    effects = [
        text
        for text, holds in (
            ("loses data", outcome.loses_data),
            ("offline", outcome.goes_offline),
            ("under min ISR", outcome.falls_under_min_isr),
        )
        if holds
    ]
    after = f"ISR {ids_text(outcome.isr_after)}  ELR {ids_text(outcome.elr_after)}, leader {outcome.leader}"
    before = f"ISR {ids_text(outcome.isr)}  ELR {ids_text(outcome.elr)}"
    return f"{', '.join(effects)}   {before} → {after}"


def recovery_lines(plans: Sequence[RecoveryPlan], *, show_all: bool = False) -> Iterator[str]:
    """Leaderless partitions with what Kafka does; those of one state and the same choice together."""
    if not plans:
        yield "every partition has a leader"
        return
    yield f"{len(plans)} partition{'s' if len(plans) > 1 else ''} without a leader; this is a plan, nothing is changed"
    groups = _groups(plans, _story, show_all)
    for names, members in groups:
        first = members[0]
        state = f"ISR {ids_text(first.isr)}  ELR {ids_text(first.elr)}  last known {ids_text(first.last_known_elr)}"
        replicas = sorted({ids_text(plan.replicas) for plan in members})
        of = f"of replicas {replicas[0]}" if len(replicas) == 1 else f"of {len(replicas)} sets of replicas"
        unclean = "on" if first.unclean_election_enabled else "off"
        yield ""
        since = when(min(plan.since_ms for plan in members))
        yield f"{names}   {state}  {of}, since {since}, unclean election {unclean}"
        yield _choice_line("Kafka", _choice_text([plan.shipped for plan in members]))
        if len(members) == 1 and first.logs:
            yield _choice_line("captured", "; ".join(map(_log_text, first.logs)))
    yield from _rest(plans, groups)
    if not any(plan.logs for plan in plans):
        yield ""
        yield "no broker's data directory was captured: where the replicas' logs end is not known"


def _choice_line(who: str, text: str) -> str:
    return f"{f'  {who}':<{CHOICE_INDENT}}{text}"


def _story(plan: RecoveryPlan) -> Hashable:
    """What a partition has in common with those that can be shown together."""
    return plan.isr, plan.elr, plan.last_known_elr, plan.unclean_election_enabled, plan.shipped.text


def _log_text(log: ReplicaLog) -> str:
    mark = log.high_watermark
    visible = "" if mark is None else f", consumers could read up to offset {mark}, perhaps more"
    if log.log_end_offset is None:
        return f"broker {log.broker_id}: where its log ends was not captured{visible}"
    stopped = ", stopped cleanly" if log.is_clean else ""
    ends = f"its log ends at offset {log.log_end_offset}, in leader epoch {log.leader_epoch}"
    return f"broker {log.broker_id}: {ends}{visible}{stopped}"


def _choice_text(choices: Sequence[Choice]) -> str:
    """One strategy for partitions that it treats alike, and what all of them lose together."""
    text, lost = choices[0].text, [choice.lost_records for choice in choices]
    if choices[0].leader is None:
        return text
    if not any(lost) and None not in lost and all(choice.lost_records_max is None for choice in choices):
        return f"{text}; loses nothing"
    known = [count for count in lost if count is not None]
    if len(known) < len(lost):
        return f"{text}; what is lost is not known"
    count = sum(known)
    records = "1 record" if count == 1 else f"{count} records"
    loses = f"loses {records} that consumers may have read" if count else "loses nothing known"
    more = sum(choice.lost_records_max or 0 for choice in choices) - count
    return f"{text}; {loses}{f', and {more} more that only other captured logs hold' if more > 0 else ''}"
