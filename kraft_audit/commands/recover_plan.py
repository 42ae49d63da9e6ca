"""`recover-plan`: what can be done for partitions that have no leader."""

from __future__ import annotations

from dataclasses import asdict, fields

from kraft_audit.commands.arguments import ConfiguredLogs, EveryLine, OutputFormat
from kraft_audit.commands.results import Results, undecided_row
from kraft_audit.text.output import Format


def recover_plan(logs: ConfiguredLogs, show_all: EveryLine = False, output: OutputFormat = Format.TABLE) -> int:
    """Say for each partition without a leader what Kafka will do, and what KIP-966's Balanced and Aggressive would.

    Partitions with the same state and the same choices are shown together; --all shows each by itself. Where PATH holds
    the brokers' data directories too, their logs show who is longest and what would be lost. It plans; it never acts.
    A cluster that could not be read or replayed has one row, with the reason in `undecided`.

    \b
    Examples:
      kraft-audit recover-plan samples/elr-29-stopped.tgz
      kraft-audit recover-plan samples/elr-06-kill-13-last-replica.tgz --output json
    """
    from kraft_audit.recovery.leaderless_partitions import RecoveryPlan
    from kraft_audit.recovery.recovery_text import recovery_lines
    from kraft_audit.rules.columns.lost_records import state_of_snapshot
    from kraft_audit.rules.judging import unreplayed_reason

    keys = ("cluster_id", *(field.name for field in fields(RecoveryPlan)), "undecided")
    results = Results(output, keys, is_spaced=False)
    for cluster in results.each_cluster(logs):
        plans, undecided = cluster.recover_plan(), unreplayed_reason(cluster.history)
        results.title(cluster, state_of_snapshot(cluster.history) or "")
        results.missing(cluster.history.gaps)
        for line in recovery_lines(plans, show_all=show_all) if undecided is None else [undecided]:
            results.text(line)
        if undecided is not None:
            results.add([undecided_row(keys, cluster.cluster_id, undecided)])
        results.add({"cluster_id": cluster.cluster_id, **asdict(plan), "undecided": None} for plan in plans)
    return results.end()
