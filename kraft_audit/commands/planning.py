"""`whatif` and `recover-plan`: what a crash would do, and what can be done once it has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kraft_audit.cluster_name import shown_cluster_id
from kraft_audit.commands.arguments import Capture, Defaults, DialectOption, OutputFormat, Path
from kraft_audit.commands.ending import UsageError
from kraft_audit.commands.histories import histories, say_missing, undecided_row
from kraft_audit.commands.reading import opened, redaction_key, redactor
from kraft_audit.output import Format, Output
from kraft_codec.schemas import Dialect

if TYPE_CHECKING:
    from kraft_audit.rules.history import ClusterHistory
    from kraft_audit.rules.recovery import RecoveryPlan

_BROKER_ID: Final = re.compile("[0-9]{1,10}")


def whatif(
    path: Path,
    lose: Annotated[
        list[str] | None,
        typer.Option(
            "--lose", metavar="BROKER", show_default=False, help="This broker crashes; several: --lose 11,12, or again."
        ),
    ] = None,
    rack: Annotated[
        list[str] | None,
        typer.Option("--rack", metavar="RACK", show_default=False, help="All brokers of this rack crash."),
    ] = None,
    in_full: Annotated[bool, typer.Option("--full", help="Every partition that something happens to.")] = False,
    output: OutputFormat = Format.TABLE,
    capture: Capture = None,
    default: Defaults = None,
    dialect: DialectOption = Dialect.KIP853,
) -> None:
    """Say which partitions go offline or lose data if those brokers crash uncleanly, together, now.

    JSON is an object; of several clusters below PATH, a list of them. Where nothing could be read or replayed of a
    cluster, `undecided` says so.

    \b
    Examples:
      kraft-audit whatif samples/elr --lose 13
      kraft-audit whatif samples/elr-06-kill-13-last-replica.tgz --lose 11,12 --output json
    """
    if not lose and not rack:
        raise UsageError("whatif needs --lose BROKER or --rack RACK")
    lost = _broker_ids(lose or [])
    from kraft_audit.rules.plan_lines import whatif_lines
    from kraft_audit.rules.registry import nothing_told
    from kraft_audit.rules.whatif import PartitionOutcome, brokers_of_racks, smallest_loss
    from kraft_audit.rules.whatif import lose as crash

    out = Output(output)
    documents: list[dict[str, Any]] = []
    for history in histories(path, dialect=dialect, capture=capture, defaults=default):
        brokers, untold = {*lost, *brokers_of_racks(history, rack or ())}, nothing_told(history)
        if out.format is Format.TABLE and not brokers and untold is None:
            out.title(shown_cluster_id(history.cluster_id))
            out.text(f"no broker here is registered in rack {', '.join(rack or ())}")
            continue
        found, smallest = crash(history, brokers), smallest_loss(history)
        if out.format is Format.TABLE:
            out.title(shown_cluster_id(history.cluster_id))
            say_missing(out, history.holes)
            for line in whatif_lines(found, smallest, in_full=in_full) if untold is None else [untold]:
                out.text(line)
        told = {**asdict(found), "smallest_loss": asdict(smallest), "undecided": untold}
        documents.append({"cluster_id": history.cluster_id, **told})
    if out.format is Format.JSON:
        out.document(documents[0] if len(documents) == 1 else documents)
    elif out.format is not Format.TABLE:
        keys = ("cluster_id", *(field.name for field in fields(PartitionOutcome)), "undecided")
        out.rows([row for one in documents for row in _outcome_rows(one, keys)], [], keys)


def _outcome_rows(document: dict[str, Any], keys: tuple[str, ...]) -> list[dict[str, Any]]:
    cluster_id, untold = document["cluster_id"], document["undecided"]
    if untold is not None:
        return [undecided_row(keys, cluster_id, untold)]
    return [{"cluster_id": cluster_id, **row, "undecided": None} for row in document["outcomes"]]


def _broker_ids(given: list[str]) -> set[int]:
    """Broker ids, each text one or several with commas between. Raises UsageError."""
    texts = [text.strip() for one in given for text in one.split(",")]
    for text in texts:
        if not _BROKER_ID.fullmatch(text) or int(text) >= 2**31:
            raise UsageError(f"--lose: {text!r}: expected a broker id, as 11, or several, as 11,12")
    return {int(text) for text in texts}


def recover_plan(
    path: Path,
    output: OutputFormat = Format.TABLE,
    capture: Capture = None,
    default: Defaults = None,
    dialect: DialectOption = Dialect.KIP853,
) -> None:
    """Say for each partition without a leader what Kafka will do, and what KIP-966's Balanced and Aggressive would.

    Where PATH holds the brokers' data directories too, their logs' ends tell who is longest and what would be lost.
    It plans; it never acts. Of a cluster of which nothing could be read or replayed there is one row, which has nothing
    but `undecided`.

    \b
    Examples:
      kraft-audit recover-plan samples/elr
      kraft-audit recover-plan samples/elr-06-kill-13-last-replica.tgz --output json
    """
    from kraft_audit.rules.plan_lines import recovery_lines
    from kraft_audit.rules.recovery import RecoveryPlan
    from kraft_audit.rules.registry import nothing_told

    out = Output(output)
    keys = ("cluster_id", *(field.name for field in fields(RecoveryPlan)), "undecided")
    rows: list[dict[str, Any]] = []
    for history, plans in _recovery_plans(path, capture, default, dialect):
        untold = nothing_told(history)
        if out.format is Format.TABLE:
            out.title(shown_cluster_id(history.cluster_id))
            say_missing(out, history.holes)
            for line in recovery_lines(plans) if untold is None else [untold]:
                out.text(line)
        if untold is not None:
            rows.append(undecided_row(keys, history.cluster_id, untold))
        rows += [{"cluster_id": history.cluster_id, **asdict(plan), "undecided": None} for plan in plans]
    if out.format is not Format.TABLE:
        out.rows(rows, [], keys)


def _recovery_plans(
    path: str, capture: str | None, defaults: list[str] | None, dialect: Dialect
) -> Iterator[tuple[ClusterHistory, list[RecoveryPlan]]]:
    """Each cluster with its plans; data directories are opened only for partitions that have no leader."""
    from kraft_audit.replay.proven_plan import in_proven_order
    from kraft_audit.rules.collect import read_history
    from kraft_audit.rules.recovery import recover_plan as plans_of
    from kraft_audit.rules.replica_logs import replica_logs

    key = redaction_key(shows_values=False)
    with opened(path, dialect=dialect, capture=capture, defaults=defaults) as found:
        for planned in found.plans:
            proven = in_proven_order(planned, open_storage=found.open_storage, redactor=redactor(key))
            plan, shape = proven.plan, proven.shape
            history = read_history(plan, open_storage=found.open_storage, redactor=redactor(key), shape=shape)
            leaderless = {(one.topic, one.partition) for one in plans_of(history)}
            logs = replica_logs(found.storage, plan, leaderless) if leaderless else {}
            yield history, plans_of(history, logs)
