"""`rescue`: writes the node dir that a quorum goes on with once its majority is lost for good."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kraft_audit.commands.arguments import Gone, LogsOrLake, OutputFormat, node_ids_of, refuse_filled, refuse_within
from kraft_audit.commands.ending import UsageError, complain
from kraft_audit.commands.results import Results, open_logs
from kraft_audit.commands.verdicts import EXIT_CODE_OF
from kraft_audit.text.output import Format, Output

if TYPE_CHECKING:
    from kraft_audit.cluster import Cluster
    from kraft_audit.clusters import Clusters
    from kraft_audit.recovery.lost_quorum.rescue import Rescue
    from kraft_audit.recovery.lost_quorum.rescue_procedure import ProcedureStep

KEYS: Final = ("cluster_id", "out", "node", "source", "cut", "offset", "epoch", "files", "procedure")
STEP_NUMBER_WIDTH: Final = 6


def rescue(
    logs: LogsOrLake,
    from_node: Annotated[
        int, typer.Option("--from", metavar="NODE", min=0, show_default=False, help="The copy to go on from.")
    ],
    out: Annotated[FilePath, typer.Option("--out", metavar="DIR", show_default=False, help="New or empty folder.")],
    node_id: Annotated[
        int | None, typer.Option("--node-id", metavar="N", min=0, show_default=False, help="Another id for the node.")
    ] = None,
    endpoint: Annotated[
        str | None,
        typer.Option("--endpoint", metavar="HOST:PORT", show_default=False, help="Where the node will listen."),
    ] = None,
    to: Annotated[
        int | None,
        typer.Option("--to", metavar="OFFSET", min=0, show_default=False, help="Last record to keep, at most."),
    ] = None,
    static: Annotated[
        bool | None,
        typer.Option("--static/--dynamic", show_default=False, help="Whether the node's config names the voters."),
    ] = None,
    gone: Gone = None,
    output: OutputFormat = Format.TABLE,
) -> int:
    """Write a new node dir that one controller starts with when a majority is lost for good, and print the procedure.

    The dir begins with a snapshot of the state of one copy, in an epoch and at an offset that no old disk can reach.
    It is for a dynamic quorum, of kraft.version 1, where metadata.version is 3.9-IV0 or later; below it stays static.
    Refused where `rescue-plan` is: exit code 1, or 4 where it is undecided. What is read is never written to. A copy of
    a lake holds no secrets: it is refused where the state needs one.

    \b
    Examples:
      kraft-audit rescue samples/divergence.tgz --gone 1,2 --from 3 --out rescued
      kraft-audit rescue samples/divergence.tgz --gone 1,2 --from 3 --to 40 --out rescued-40
    """
    from kraft_audit.recovery.lost_quorum.rescue import RescueRefusedError, RescueRequest
    from kraft_audit.recovery.lost_quorum.rescue_procedure import procedure

    refuse_within(out, logs.path)
    if logs.lake is not None:
        refuse_within(out, logs.lake)
    refuse_filled(out)
    request = RescueRequest(from_node, out, node_id, None if endpoint is None else _endpoint(endpoint), to, static)
    results = Results(output, KEYS)
    missing = node_ids_of("--gone", gone)
    with open_logs(logs) as clusters:
        cluster = _chosen(clusters, logs.path, from_node)
        try:
            rescue = cluster.rescue(request, missing)
        except RescueRefusedError as refused:
            complain(f"{logs.path}: refused: {refused.reason}")
            for step in refused.plan.next_steps if refused.plan is not None else ():
                complain(step)
            return EXIT_CODE_OF["refused" if refused.plan is None else refused.plan.verdict]
        steps = list(procedure(rescue))
        documents = [
            {"cluster_id": cluster.cluster_id, **asdict(rescue), "procedure": [asdict(step) for step in steps]}
        ]
        results.add(documents)
        results.title(cluster)
        if results.is_table:
            _print(results.out, rescue, steps)
    return results.end_documents(documents)


def _chosen(clusters: Clusters, path: str, from_node: int) -> Cluster:
    """Which cluster is meant: of several, or of several histories of one id, the one with a disk of this node.

    Raises UsageError.
    """
    candidates = list(clusters)
    if len(candidates) > 1:
        candidates = [each for each in candidates if any(part.node_id == from_node for part in each.plan.replicas)]
    if len(candidates) != 1:
        raise UsageError(f"{path}: {len(clusters)} clusters there: choose one with --cluster")
    return candidates[0]


def _print(lines: Output, rescue: Rescue, steps: Sequence[ProcedureStep]) -> None:
    node = rescue.node
    lines.text(f"{rescue.out}: node {node.node_id}, directory id {node.directory_id}, {node.host}:{node.port}")
    lines.text(f"state of {rescue.source.copy.name} before offset {rescue.cut}; log start offset {rescue.offset}")
    for number, step in enumerate(steps, start=1):
        lines.text(f"{f'{number}.':<{STEP_NUMBER_WIDTH}}{step.text}", hanging=STEP_NUMBER_WIDTH)
        for line in (*step.settings, *step.commands):
            lines.text(" " * STEP_NUMBER_WIDTH + line)


def _endpoint(text: str) -> tuple[str, int]:
    """Host and port of --endpoint. Raises UsageError."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise UsageError(f"--endpoint: {text!r}: expected HOST:PORT, as controller-1.example:9093")
    return host.strip("[]"), int(port)
