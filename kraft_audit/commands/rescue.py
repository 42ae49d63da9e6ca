"""`rescue`: writes the node dir that a quorum goes on with once its majority is lost for good; --plan ranks copies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kraft_audit.commands.arguments import (
    Gone,
    LogsOrLake,
    NewFolder,
    NodeConfigs,
    OutputFormat,
    configurations_of,
    node_ids_of,
    refuse_filled,
    refuse_within,
)
from kraft_audit.commands.branch_option import BranchOption, branch_of, on_branch
from kraft_audit.commands.completion import node_ids
from kraft_audit.commands.ending import UsageError, complain
from kraft_audit.commands.rescue_plan import show_plan
from kraft_audit.commands.results import Results, open_logs
from kraft_audit.commands.verdicts import EXIT_CODE_OF
from kraft_audit.text.output import Format, Output

if TYPE_CHECKING:
    from kraft_audit.cluster import Cluster
    from kraft_audit.quorum.voter_history import Endpoint
    from kraft_audit.recovery.lost_quorum.procedure_step import ProcedureStep
    from kraft_audit.recovery.lost_quorum.rescue import Rescue
    from kraft_audit.recovery.start_order import StartOrder

KEYS: Final = ("cluster_id", "out", "node", "source", "cut", "offset", "epoch", "files", "config", "procedure")
OF_WHAT_IS_WRITTEN: Final = ("--from", "--out", "--node-id", "--endpoint", "--to", "--static", "--config")
STEP_NUMBER_WIDTH: Final = 6
SETTINGS_BESIDE_STEP: Final = 4
"""More lines of a config stand in the notes: the procedure itself is read at three in the morning."""
NOTES: Final = "To know:"
LATER: Final = "Later, back to a majority:"


def rescue(
    logs: LogsOrLake,
    plan: Annotated[bool, typer.Option("--plan", help="Write nothing. Rank the remaining copies of the log.")] = False,
    from_node: Annotated[
        int | None,
        typer.Option(
            "--from",
            metavar="NODE",
            min=0,
            show_default=False,
            help="Continue from this node's copy of the log.",
            autocompletion=node_ids,
        ),
    ] = None,
    out: Annotated[FilePath | None, NewFolder] = None,
    node_id: Annotated[
        int | None,
        typer.Option(
            "--node-id", metavar="N", min=0, show_default=False, help="Give the new controller another node id."
        ),
    ] = None,
    endpoint: Annotated[
        list[str] | None,
        typer.Option(
            "--endpoint",
            metavar="HOST:PORT",
            show_default=False,
            help="Address at which the new controller will listen. For several listeners, repeat it as "
            "LISTENER://HOST:PORT.",
        ),
    ] = None,
    to: Annotated[
        int | None,
        typer.Option("--to", metavar="OFFSET", min=0, show_default=False, help="Drop records after this offset."),
    ] = None,
    static: Annotated[
        bool | None,
        typer.Option(
            "--static/--dynamic",
            show_default=False,
            help="Make the quorum static (controller.quorum.voters) or dynamic.",
        ),
    ] = None,
    gone: Gone = None,
    config: NodeConfigs = None,
    branch: BranchOption = None,
    output: OutputFormat = Format.TABLE,
) -> int:
    """Write a node dir from which one controller starts the quorum again after a majority is lost for good.

    Run it with --plan first. --plan writes nothing. It ranks the remaining copies of the metadata log. For each copy it
    says up to which offset the copy certainly holds every committed record. It also says which records a quorum that
    continues from this copy would lose, bring back or commit. Exit code 0 if there is a plan, 4 if it is undecided.
    Exit code 1 if the plan is refused, for example because a majority may still be alive.

    Without --plan the command writes the node dir DIR from the copy that --from names, and then prints the procedure.
    DIR starts with a snapshot of the state in that copy. The epoch and offset of this snapshot are higher than any old
    disk can reach. The new quorum is dynamic (kraft.version 1) if the controllers run Kafka 3.9 or later and
    metadata.version is at least 3.9-IV0. Otherwise it is static.

    The command also writes the new controller's server.properties beside DIR: the old file, with the lines changed that
    must differ. If no copy of the old file lies beside the disks, pass it with --config. Without it, the procedure has
    blanks for the settings that you must copy by hand, the authorizer first.

    `rescue` refuses whatever `rescue --plan` refuses, with the same exit codes. It never writes to PATH. If logs
    contradict each other, --branch chooses one of them. Nodes that hold another branch are then left out, as if --gone
    named them.

    A lake also holds copies: each disk as it was when `run` read it. --lake uses those copies together with the disks
    below PATH. If no disk is left, PATH may be the lake. A copy from a lake holds no secrets, so `rescue` refuses it if
    the state needs a secret.

    \b
    Examples:
      kraft-audit rescue --plan samples/divergence.tgz --gone 1,2
      kraft-audit rescue --plan .demo/lake --cluster divergence --gone 1,2,3
      kraft-audit rescue samples/divergence.tgz --gone 1,2 --from 3 --out rescued
      kraft-audit rescue samples/divergence.tgz --gone 1,2 --from 3 --to 40 --out rescued-40
    """
    from kraft_audit.recovery.lost_quorum.rescue_procedure import procedure
    from kraft_audit.recovery.lost_quorum.rescue_request import RescueRefusedError, RescueRequest
    from kraft_audit.recovery.lost_quorum.rescued_controller import client_path, config_path

    if plan:
        _refuse_to_write(from_node, out, node_id, endpoint, to, static, config)
        return show_plan(logs, gone, branch, output)
    if from_node is None or out is None:
        raise UsageError("--from NODE and --out DIR say what to write; --plan says which node's copy to take")
    refuse_within(out, logs.path)
    if logs.lake is not None:
        refuse_within(out, logs.lake)
    refuse_filled(out)
    for beside, what in ((config_path(out), "new controller's config"), (client_path(out), "config of Kafka's tools")):
        if beside.exists():
            raise UsageError(f"--out: {beside} is there already, and would be the {what}")
    endpoints = tuple(_endpoint(text) for text in endpoint or ())
    request = RescueRequest(from_node, out, node_id, endpoints, to, static, configurations_of(config))
    results = Results(output, KEYS)
    missing = node_ids_of("--gone", gone)
    with open_logs(logs) as clusters:
        named = branch_of(branch)
        cluster = _chosen(list(on_branch(clusters, named, logs.capture)), logs.path, from_node)
        try:
            rescue = cluster.rescue(request, missing)
        except RescueRefusedError as refused:
            complain(f"{logs.path}: refused: {refused.reason}")
            for step in refused.plan.next_steps if refused.plan is not None else ():
                complain(step)
            return EXIT_CODE_OF["refused" if refused.plan is None else refused.plan.verdict]
        steps = list(procedure(rescue, _order_of_starts(rescue)))
        documents = [
            {"cluster_id": cluster.cluster_id, **asdict(rescue), "procedure": [asdict(step) for step in steps]}
        ]
        results.add(documents)
        results.title(cluster)
        if results.is_table:
            _print(results.out, rescue, steps)
    return results.end_documents(documents)


def _refuse_to_write(*values: object) -> None:
    """Raises UsageError for --plan with an option of what is written."""
    given = [option for option, value in zip(OF_WHAT_IS_WRITTEN, values, strict=True) if value not in (None, [])]
    if given:
        raise UsageError(f"--plan writes nothing: leave out {', '.join(given)}")


def _order_of_starts(rescue: Rescue) -> StartOrder:
    """In which order brokers start, by the state that was written: what `recover-plan` says of the dir."""
    import kraft_audit
    from kraft_audit.recovery.start_order import order_of_starts

    with kraft_audit.open(rescue.out) as clusters:
        (cluster,) = clusters
        return order_of_starts(cluster.history, cluster.recover_plan())


def _chosen(clusters: Sequence[Cluster], path: str, from_node: int) -> Cluster:
    """Which cluster is meant: of several, or of several histories of one id, the one with a disk of this node.

    Raises UsageError.
    """
    candidates = [*clusters]
    if len(candidates) > 1:
        candidates = [each for each in candidates if any(part.node_id == from_node for part in each.plan.replicas)]
    if len(candidates) != 1:
        raise UsageError(f"{path} holds {len(clusters)} clusters: choose one with --cluster")
    return candidates[0]


def _print(lines: Output, rescue: Rescue, steps: Sequence[ProcedureStep]) -> None:
    from kraft_audit.recovery.lost_quorum.procedure_step import OWN_NOTE
    from kraft_audit.recovery.lost_quorum.rescue_procedure import what_is_lost

    node = rescue.node
    addresses = ", ".join(endpoint.address for endpoint in node.endpoints)
    lines.text(f"{rescue.out}: node {node.node_id}, directory id {node.directory_id}, {addresses}")
    lines.text(f"state of {rescue.source.copy.name} before offset {rescue.cut}; log start offset {rescue.offset}")
    lines.text(what_is_lost(rescue))
    notes = []
    now, later = (
        [step for step in steps if not step.is_note and step.is_later is is_later] for is_later in (False, True)
    )
    for number, step in enumerate((*now, *later), start=1):
        if later and step is later[0]:
            lines.text(LATER)
        what, more = step.sentences
        what = what.replace(OWN_NOTE, f"note {number} below")
        lines.text(f"{f'{number}.':<{STEP_NUMBER_WIDTH}}{what}", hanging=STEP_NUMBER_WIDTH)
        is_long = len(step.settings) > SETTINGS_BESIDE_STEP
        for line in (*(() if is_long else step.settings), *step.commands):
            lines.text(" " * STEP_NUMBER_WIDTH + line)
        if more or is_long:
            notes.append((f"{number}.", more or "The lines:", step.settings if is_long else ()))
    notes += [("", step.text, ()) for step in steps if step.is_note]
    lines.text("")
    lines.text(NOTES)
    for name, text, settings in notes:
        lines.text(f"{name:<{STEP_NUMBER_WIDTH}}{text}", hanging=STEP_NUMBER_WIDTH)
        for line in settings:
            lines.text(" " * STEP_NUMBER_WIDTH + line)


def _endpoint(text: str) -> Endpoint:
    """An --endpoint. Raises UsageError."""
    from kraft_audit.quorum.voter_history import Endpoint

    listener, _, place = text.rpartition("://")
    host, _, port = place.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise UsageError(f"--endpoint: {text!r}: expected HOST:PORT, for example controller-1.example:9093")
    return Endpoint(listener, host.strip("[]"), int(port))
