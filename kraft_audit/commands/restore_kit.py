"""`restore-kit`: Kafka's own commands that bring a cluster's state back on another cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kraft_audit.commands.arguments import (
    AT_HELP,
    ConfiguredLogs,
    OutputFormat,
    place_of,
    refuse_filled,
    refuse_within,
    state_at_place,
)
from kraft_audit.commands.ending import UsageError
from kraft_audit.commands.results import Results
from kraft_audit.text.output import Format

if TYPE_CHECKING:
    from kraft_audit.cluster import Cluster
    from kraft_audit.recovery.restore_kit import RestoreKit
    from kraft_audit.replay.cluster_state import ClusterState, Moment

KEYS: Final = ("cluster_id", "kind", "subject", "command", "blanks")


def restore_kit(
    logs: ConfiguredLogs,
    at: Annotated[str | None, typer.Option("--at", metavar="PLACE", show_default=False, help=AT_HELP)] = None,
    any_brokers: Annotated[
        bool, typer.Option("--any-brokers", help="The other cluster's brokers have other ids: Kafka places replicas.")
    ] = False,
    internal_topics: Annotated[
        bool, typer.Option("--internal-topics", help="Kafka's internal topics too, such as __consumer_offsets.")
    ] = False,
    bootstrap_server: Annotated[
        str | None,
        typer.Option("--bootstrap-server", metavar="HOST:PORT", show_default=False, help="Of the other cluster."),
    ] = None,
    command_config: Annotated[
        str | None,
        typer.Option("--command-config", metavar="FILE", show_default=False, help="What the tools log in with there."),
    ] = None,
    out: Annotated[
        FilePath | None, typer.Option("--out", metavar="DIR", show_default=False, help="New or empty folder for files.")
    ] = None,
    output: OutputFormat = Format.TABLE,
) -> int:
    """Print a script of Kafka's own commands that brings the state back on another cluster: topics, configs, ACLs.

    Also client quotas and SCRAM users, whose passwords are blanks to fill in: logs and this output hold no secrets.
    What no command brings back stands in the script's head, with the reason. The script can be run again.

    \b
    Examples:
      kraft-audit restore-kit samples/elr-29-stopped.tgz
      kraft-audit restore-kit samples/divergence.tgz --at 40 --any-brokers --output json
    """
    from kraft_audit.recovery.restorable_state import restorable_state
    from kraft_audit.recovery.restore_kit import KitRequest, restore_kit, script

    place = place_of("--at", at)
    if out is not None:
        refuse_within(out, logs.path)
        refuse_filled(out)
    request = KitRequest(any_brokers, internal_topics, bootstrap_server, command_config)
    results = Results(output, KEYS)
    documents: list[dict[str, Any]] = []
    for cluster, moment in results.each_moment(logs, _tables()):
        if documents:
            raise UsageError(f"{logs.path}: several clusters there: choose one with --cluster")
        state = state_at_place(moment, place)
        kit = restore_kit(restorable_state(state), request)
        lines = list(script(kit, _heading(cluster, moment, state, kit)))
        documents.append(_document(state, moment, kit))
        results.add({"cluster_id": state.cluster_id, **row} for row in documents[-1]["commands"])
        if out is not None:
            _write(out, {"restore.sh": "\n".join(lines) + "\n"})
        if results.is_table:
            for line in lines:
                results.out.line(line)
    return results.end_documents(documents)


def _tables() -> frozenset[str]:
    from kraft_audit.replay.cluster_replay import REPLAY_TABLES

    return REPLAY_TABLES


def _heading(cluster: Cluster, moment: Moment, state: ClusterState, kit: RestoreKit) -> Iterator[str]:
    from kraft_audit.replay.cluster_state import missing_text

    yield f"State of cluster {cluster.title} after offset {state.offset}: {kit.object_count} objects."
    yield f"{moment.proof_text(state.offset)}."
    if not state.has_beginning:
        yield "INCOMPLETE: the log begins after offset 0 and no snapshot reaches its start."
    if state.undecoded:
        yield f"INCOMPLETE: {state.undecoded.count} records could not be decoded."
    if state.gaps:
        yield f"INCOMPLETE: {missing_text(state.gaps)}."


def _document(state: ClusterState, moment: Moment, kit: RestoreKit) -> dict[str, Any]:
    return {
        "cluster_id": state.cluster_id,
        "offset": state.offset,
        "proven_to": moment.low,
        "is_complete": state.is_complete,
        "object_count": kit.object_count,
        "commands": [
            {
                "kind": step.kind,
                "subject": step.subject,
                "command": step.command.text,
                "blanks": [blank.name for blank in step.command.blanks],
            }
            for step in kit.restored
        ],
        "blanks": [{"name": blank.name, "meaning": blank.meaning} for blank in kit.blanks],
        "left_out": [{"kind": each.kind, "subject": each.subject, "reason": each.reason} for each in kit.left_out],
    }


def _write(out: FilePath, files: dict[str, str]) -> None:
    from kraft_audit.text.text_files import whole_file

    out.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        with whole_file(out / name) as path:
            path.write_text(text, encoding="utf-8")
