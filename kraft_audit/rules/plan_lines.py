"""What `whatif` and `recover-plan` print."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kraft_audit.rules.recovery import Choice, RecoveryPlan, ReplicaLog
from kraft_audit.rules.whatif import PartitionOutcome, SmallestLoss, WhatIf
from kraft_audit.times import when

LISTED = 20


def whatif_lines(found: WhatIf, smallest: SmallestLoss, *, in_full: bool = False) -> Iterator[str]:
    """What a crash would do, the worst first."""
    lost = " ".join(map(str, found.lost_brokers))
    noun = "brokers" if len(found.lost_brokers) > 1 else "broker"
    yield f"if {noun} {lost} crashed uncleanly now, of {found.partition_count} partitions"
    if found.unknown_brokers:
        yield f"  not registered: {' '.join(map(str, found.unknown_brokers))}"
    if found.fenced_brokers:
        are = "is" if len(found.fenced_brokers) == 1 else "are"
        yield f"  {' '.join(map(str, found.fenced_brokers))} {are} fenced already"
    yield f"  {found.loss_count} lose acknowledged records unless the disks come back whole"
    yield f"  {found.offline_count} go offline{_already(found.already_offline_count)}"
    refused = "acks=all producers are refused"
    yield f"  {found.under_min_isr_count} fall under min ISR{_already(found.already_under_min_isr_count)}: {refused}"
    outcomes = found.outcomes if in_full else found.outcomes[:LISTED]
    width = max((len(_name(outcome)) for outcome in outcomes), default=0)
    for outcome in outcomes:
        yield f"    {_name(outcome):<{width}}   {_outcome_text(outcome)}"
    if len(outcomes) < len(found.outcomes):
        yield f"    {len(found.outcomes) - len(outcomes)} more"
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


def _name(outcome: PartitionOutcome) -> str:
    return f"{outcome.topic}-{outcome.partition}"


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
    after = f"ISR {_ids(outcome.isr_after)}  ELR {_ids(outcome.elr_after)}, leader {outcome.leader}"
    before = f"ISR {_ids(outcome.isr)}  ELR {_ids(outcome.elr)}"
    return f"{', '.join(effects)}   {before} → {after}"


def recovery_lines(plans: Sequence[RecoveryPlan]) -> Iterator[str]:
    """Each leaderless partition with its three choices."""
    if not plans:
        yield "every partition has a leader"
        return
    yield f"{len(plans)} partition{'s' if len(plans) > 1 else ''} without a leader; this is a plan, nothing is changed"
    for plan in plans:
        state = f"ISR {_ids(plan.isr)}  ELR {_ids(plan.elr)}  last known {_ids(plan.last_known_elr)}"
        unclean = "on" if plan.unclean_election_enabled else "off"
        yield ""
        more = f"of replicas {_ids(plan.replicas)}, since {when(plan.since_ms)}, unclean election {unclean}"
        yield f"{plan.topic}-{plan.partition}   {state}  {more}"
        for name, choice in (("Kafka", plan.shipped), ("Balanced", plan.balanced), ("Aggressive", plan.aggressive)):
            yield f"  {name:<11}{_choice_text(choice)}"
        if plan.logs:
            yield f"  {'captured':<11}{'; '.join(map(_log_text, plan.logs))}"
    if not any(plan.logs for plan in plans):
        yield ""
        yield "no broker's data directory was captured: where the replicas' logs end is not known"


def _log_text(log: ReplicaLog) -> str:
    mark = log.high_watermark
    visible = "" if mark is None else f", consumers could read up to offset {mark}, perhaps more"
    if log.log_end_offset is None:
        return f"broker {log.broker_id}: where its log ends was not captured{visible}"
    stopped = ", stopped cleanly" if log.is_clean else ""
    ends = f"its log ends at offset {log.log_end_offset}, in leader epoch {log.leader_epoch}"
    return f"broker {log.broker_id}: {ends}{visible}{stopped}"


def _choice_text(choice: Choice) -> str:
    if choice.leader is None:
        return choice.text
    if choice.lost_records == 0 and choice.lost_records_max is None:
        return f"{choice.text}; loses nothing"
    if choice.lost_records is None:
        return f"{choice.text}; what is lost is not known"
    records = "1 record" if choice.lost_records == 1 else f"{choice.lost_records} records"
    lost = f"loses {records} that consumers may have read" if choice.lost_records else "loses nothing known"
    more = (choice.lost_records_max or 0) - choice.lost_records
    return f"{choice.text}; {lost}{f', and {more} more that only other captured logs hold' if more > 0 else ''}"


def _ids(nodes: Sequence[int]) -> str:
    return "[" + " ".join(map(str, nodes)) + "]"
