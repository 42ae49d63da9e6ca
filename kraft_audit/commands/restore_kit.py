"""`restore-kit`: Kafka's own commands that bring a cluster's state back on another cluster."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kraft_audit.commands.arguments import (
    POINT,
    POINT_HELP,
    LogsOrLake,
    OutputFormat,
    place_of,
    refuse_filled,
    refuse_within,
    state_at_place,
)
from kraft_audit.commands.branch_option import BranchOption, branch_of
from kraft_audit.commands.ending import UsageError
from kraft_audit.commands.results import Results, looks_like_a_lake, open_logs
from kraft_audit.text.output import Format
from kraft_codec.errors import InputError

if TYPE_CHECKING:
    from kraft_audit.capture.declared_rescue import DeclaredRescue
    from kraft_audit.cluster import Cluster
    from kraft_audit.recovery.restore.lost_state import LostLog
    from kraft_audit.recovery.restore.restore_kit import KitRequest, RestoreKit
    from kraft_audit.recovery.restore.revoked_rights import RevokedRights
    from kraft_audit.recovery.restore.stray_logs import OldLog
    from kraft_audit.replay.cluster_state import ClusterState, Moment

KEYS: Final = ("cluster_id", "kind", "subject", "command", "blanks")


def restore_kit(
    logs: LogsOrLake,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar=POINT, show_default=False, help=f"Restore the state {POINT_HELP}."),
    ] = None,
    branch: BranchOption = None,
    only_lost: Annotated[
        bool,
        typer.Option("--only-lost", help="Restore only what divergence, truncation or a rescue lost."),
    ] = False,
    old_disks: Annotated[
        str | None,
        typer.Option(
            "--old-disks",
            metavar="PATH",
            show_default=False,
            help="Where the old disks of a rescue are now, if they moved.",
        ),
    ] = None,
    any_brokers: Annotated[
        bool,
        typer.Option(
            "--any-brokers",
            help="Let Kafka choose the brokers of each replica. Use it if the other cluster has other broker ids.",
        ),
    ] = False,
    internal_topics: Annotated[
        bool, typer.Option("--internal-topics", help="Also restore internal topics, such as __consumer_offsets.")
    ] = False,
    bootstrap_server: Annotated[
        str | None,
        typer.Option(
            "--bootstrap-server", metavar="HOST:PORT", show_default=False, help="Bootstrap server of the other cluster."
        ),
    ] = None,
    command_config: Annotated[
        str | None,
        typer.Option(
            "--command-config",
            metavar="FILE",
            show_default=False,
            help="Client config with which Kafka's tools reach the other cluster.",
        ),
    ] = None,
    out: Annotated[
        FilePath | None,
        typer.Option(
            "--out", metavar="DIR", show_default=False, help="Also write the script into this new or empty folder."
        ),
    ] = None,
    output: OutputFormat = Format.TABLE,
) -> int:
    """Print a script of Kafka's own commands that rebuilds this cluster's state on another cluster.

    The script restores topics, configs, ACLs, client quotas and SCRAM users. Passwords are blanks that you fill in: the
    log does not hold them, and this output never shows a secret. The head of the script lists what no command can
    restore, with the reason. You can run the script more than once.

    With --only-lost the script restores what this cluster has lost, on the cluster itself. PATH then holds logs that
    diverged, or is the node dir that `rescue` wrote. The rescue.json in that dir says where the old disks were.

    PATH may be a lake. Its archive holds the state at any time, and records that were truncated later. With --only-lost
    and --lake, whatever only the lake still holds counts as lost.

    \b
    Examples:
      kraft-audit restore-kit samples/elr-29-stopped.tgz
      kraft-audit restore-kit samples/divergence.tgz --only-lost
      kraft-audit restore-kit samples/divergence.tgz --at 40 --any-brokers --output json
      kraft-audit restore-kit .demo/lake --cluster divergence --only-lost
    """
    from kraft_audit.recovery.restore.restore_kit import KitRequest, kit_heading, script
    from kraft_audit.recovery.restore.revoked_rights import removal_lines
    from kraft_audit.recovery.restore.stray_logs import old_log_steps
    from kraft_audit.replay.cluster_replay import REPLAY_TABLES

    place = place_of("--at", at)
    if only_lost and at is not None:
        raise UsageError("--only-lost compares the ends of logs: leave out --at")
    if old_disks is not None and not only_lost:
        raise UsageError("--old-disks needs --only-lost")
    if out is not None:
        refuse_within(out, logs.path)
        if logs.lake is not None:
            refuse_within(out, logs.lake)
        refuse_filled(out)
    request = KitRequest(any_brokers, internal_topics, bootstrap_server, command_config)
    results = Results(output, KEYS)
    documents: list[dict[str, Any]] = []
    lake = logs.lake
    if lake is not None and only_lost and _is_rescued(logs):
        logs = replace(logs, lake=None)  # it is a copy of the old disks, and none of the rescued one
    for cluster, moment in results.each_moment(logs, REPLAY_TABLES, branch_of(branch)):
        if documents:
            raise UsageError(f"{logs.path} holds several clusters: choose one with --cluster")
        state = state_at_place(moment, place)
        if state.offset < 0:
            raise UsageError("--at: the log starts later, so there is no state to restore")
        made = _lost(cluster, moment, state, request, old_disks, lake) if only_lost else _whole(cluster, state, request)
        heading = list(kit_heading(cluster.title, moment, state, made.kit, made.lost))
        at_end = [*old_log_steps(made.old_logs, made.next_producer_id)]
        at_end += [line for each in made.revoked for line in removal_lines(each, request.server)]
        lines = list(script(made.kit, heading, at_end))
        documents.append(_document(state, moment, made))
        results.add({"cluster_id": state.cluster_id, **row} for row in documents[-1]["commands"])
        if out is not None:
            _write(out, lines)
        if results.is_table:
            for line in lines:
                results.out.script(line)
    return results.end_documents(documents)


@dataclass(frozen=True, slots=True)
class _Made:
    """A kit, the logs whose state it is (None: the cluster's own), and the old logs of the topics that it creates.

    `next_producer_id`: the one that the cluster has to be above. `revoked`: rights that are there again, by log.
    """

    kit: RestoreKit
    lost: list[LostLog] | None
    old_logs: list[OldLog]
    next_producer_id: int | None = None
    revoked: tuple[RevokedRights, ...] = ()


def _whole(cluster: Cluster, state: ClusterState, request: KitRequest) -> _Made:
    from kraft_audit.recovery.restore.restorable_state import restorable_state
    from kraft_audit.recovery.restore.restore_kit import restore_kit

    present = restorable_state(state)
    kit = restore_kit(present, request)
    logs = cluster.old_logs(kit.topics, names_missing=False)
    return _Made(kit, None, logs, present.next_producer_id)


def _is_rescued(logs: LogsOrLake) -> bool:
    """Whether PATH is what `rescue` wrote."""
    from kraft_audit.recovery.restore.lost_state import declared_rescue

    with open_logs(replace(logs, lake=None)) as clusters:
        return any(declared_rescue(cluster.storage, cluster.disks) is not None for cluster in clusters)


def _lost(
    cluster: Cluster,
    moment: Moment,
    state: ClusterState,
    request: KitRequest,
    old_disks: str | None,
    lake: str | None,
) -> _Made:
    """Raises UsageError, InputError."""
    from kraft_audit.recovery.restore.lost_state import declared_rescue

    declared = declared_rescue(cluster.storage, cluster.disks)
    if declared is not None and declared.misfit is not None:
        raise UsageError(f"{cluster.root}: rescue.json does not fit the node dir: {declared.misfit}")
    if declared is not None:
        places = (old_disks or declared.read_from, lake or declared.read_from_lake)
        return _lost_by_rescue(cluster, state, request, declared, places)
    if old_disks is not None:
        raise UsageError(f"--old-disks: {cluster.root} has no rescue.json: it is not what `rescue` wrote")
    return _lost_of(cluster, cluster.lost_logs(moment.log, moment.end_offset), state, request)


def _lost_by_rescue(
    cluster: Cluster,
    state: ClusterState,
    request: KitRequest,
    declared: DeclaredRescue,
    places: tuple[str, str | None],
) -> _Made:
    """What a rescue lost. `places`: the old disks, or a lake, and a lake beside the disks. Raises as `_lost`."""
    import kraft_audit
    from kraft_audit.recovery.restore.lost_state import rescued_from

    place, lake = places
    same: dict[str, Any] = {"cluster_id": cluster.cluster_id, "redaction_key": cluster.redaction_key, "lake": lake}
    same["named"] = declared.owners if place == declared.read_from else ()
    try:
        is_lake = looks_like_a_lake(place)
        opened = kraft_audit.open_lake(place) if is_lake else kraft_audit.open(place, **same)
    except InputError as problem:
        raise InputError(
            place, f"{problem.detail}; rescue.json names this path for the old disks: --old-disks names another"
        ) from None
    with opened as clusters:
        for old in clusters:
            source = rescued_from(old.reading, declared)
            if source is not None:
                return _lost_of(old, old.lost_logs(*source), state, request)
    raise UsageError(
        f"{place}: the copy from which the rescue continued is not there: name the old disks with --old-disks"
    )


def _lost_of(old: Cluster, logs: list[LostLog], state: ClusterState, request: KitRequest) -> _Made:
    from kraft_audit.recovery.restore.lost_state import lost_state
    from kraft_audit.recovery.restore.restorable_state import restorable_state
    from kraft_audit.recovery.restore.restore_kit import restore_kit, with_notes

    present = restorable_state(state)
    lost = lost_state(logs, present)
    kit = with_notes(restore_kit(lost.wanted, request, present.topics), lost.notes)
    old_id = max((log.ended.next_producer_id or 0 for log in logs), default=0)
    is_above = (present.next_producer_id or 0) >= old_id
    old_logs = old.old_logs(kit.topics, names_missing=True)
    return _Made(kit, logs, old_logs, None if is_above else old_id, lost.revoked)


def _document(state: ClusterState, moment: Moment, made: _Made) -> dict[str, Any]:
    kit = made.kit
    return {
        "cluster_id": state.cluster_id,
        "offset": state.offset,
        "proven_to": moment.low,
        "is_complete": state.is_complete and all(log.is_complete for log in made.lost or ()),
        "object_count": kit.object_count,
        "lost": None if made.lost is None else [log.name for log in made.lost],
        "commands": [
            {
                "kind": step.kind,
                "subject": step.subject,
                "command": step.command.text,
                "blanks": [blank.name for blank in step.command.blanks],
            }
            for step in kit.restored
        ],
        "blanks": [asdict(blank) for blank in kit.blanks],
        "left_out": [asdict(each) for each in kit.left_out],
        "old_logs": [asdict(log) for log in made.old_logs],
    }


def _write(out: FilePath, lines: list[str]) -> None:
    from kraft_audit.text.text_files import whole_file

    out.mkdir(parents=True, exist_ok=True)
    with whole_file(out / "restore.sh") as path:
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
