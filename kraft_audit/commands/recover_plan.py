"""`recover-plan`: what can be done for partitions that have no leader."""

from __future__ import annotations

from dataclasses import asdict, fields

from kraft_audit.commands.arguments import ConfiguredLogs, EveryLine, OutputFormat
from kraft_audit.commands.results import Results, undecided_row
from kraft_audit.text.output import Format


def recover_plan(logs: ConfiguredLogs, show_all: EveryLine = False, output: OutputFormat = Format.TABLE) -> int:
    """Say which brokers to start, in which order, for partitions without a leader, and what Kafka will then do.

    Use the last line of the plan only if disks are lost for good: it runs kafka-leader-election. Partitions with the
    same state are shown together; --all shows each partition. If PATH also holds the brokers' data directories, the
    plan says where the logs end, and what would be lost. The JSON also says what the strategies of KIP-966 would do,
    which Kafka never shipped. The command only plans; it changes nothing. If a cluster could not be read or replayed,
    it has one row, and `undecided` says why.

    \b
    Examples:
      kraft-audit recover-plan samples/elr-29-stopped.tgz
      kraft-audit recover-plan samples/elr-06-kill-13-last-replica.tgz --output json
    """
    from kraft_audit.recovery.leaderless_partitions import RecoveryPlan
    from kraft_audit.recovery.recovery_text import CHOICE_INDENT, recovery_lines
    from kraft_audit.recovery.start_order import start_lines
    from kraft_audit.rules.columns.lost_records import state_of_snapshot
    from kraft_audit.rules.judging import unreplayed_reason

    keys = ("cluster_id", *(field.name for field in fields(RecoveryPlan)), "undecided")
    results = Results(output, keys, is_spaced=False)
    for cluster in results.each_cluster(logs):
        plans, undecided = cluster.recover_plan(), unreplayed_reason(cluster.history)
        results.title(cluster, state_of_snapshot(cluster.history) or "")
        results.missing(cluster.history.gaps)
        for line in recovery_lines(plans, show_all=show_all) if undecided is None else [undecided]:
            results.text(line, CHOICE_INDENT if line.startswith(" ") else None)
        if results.is_table and undecided is None:
            steps = start_lines(plans, cluster.history, logs.path, cluster.may_i, show_all=show_all)
            for number, step in enumerate(steps):
                if number == 0:
                    results.text("")
                results.text(f"{'NEXT' if number == 0 else '':<{CHOICE_INDENT}}{step}", CHOICE_INDENT)
        if undecided is not None:
            results.add([undecided_row(keys, cluster.cluster_id, undecided)])
        results.add({"cluster_id": cluster.cluster_id, **asdict(plan), "undecided": None} for plan in plans)
    return results.end()
