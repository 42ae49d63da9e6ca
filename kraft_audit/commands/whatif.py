"""`whatif`: what a crash of brokers would do now."""

from __future__ import annotations

import re
from dataclasses import asdict, fields
from typing import Annotated, Any, Final

import typer

from kraft_audit.commands.arguments import ConfiguredLogs, EveryLine, OutputFormat
from kraft_audit.commands.completion import node_ids
from kraft_audit.commands.ending import UsageError
from kraft_audit.commands.results import Results, undecided_row
from kraft_audit.text.output import Format

_BROKER_ID: Final = re.compile("[0-9]{1,10}")


def whatif(
    logs: ConfiguredLogs,
    lose: Annotated[
        list[str] | None,
        typer.Option(
            "--lose",
            metavar="BROKER",
            show_default=False,
            help="Broker that crashes. For several: --lose 11,12. Repeatable.",
            autocompletion=node_ids,
        ),
    ] = None,
    rack: Annotated[
        list[str] | None,
        typer.Option("--rack", metavar="RACK", show_default=False, help="Rack whose brokers all crash. Repeatable."),
    ] = None,
    show_all: EveryLine = False,
    output: OutputFormat = Format.TABLE,
) -> int:
    """Say which partitions would go offline or lose data if the brokers that you name crashed together now.

    A crash is a stop without controlled shutdown. Partitions with the same outcome are shown together; --all shows each
    partition. JSON is one object, or a list of objects if PATH holds several clusters. If a cluster could not be read
    or replayed, `undecided` says why.

    \b
    Examples:
      kraft-audit whatif samples/elr-29-stopped.tgz --lose 13
      kraft-audit whatif samples/elr-06-kill-13-last-replica.tgz --lose 11,12 --output json
    """
    if not lose and not rack:
        raise UsageError("whatif needs --lose BROKER or --rack RACK")
    brokers, racks = broker_ids(lose or []), rack or []
    from kraft_audit.recovery.crash_forecast import PartitionOutcome
    from kraft_audit.recovery.recovery_text import whatif_lines
    from kraft_audit.rules.judging import unreplayed_reason

    keys = ("cluster_id", *(field.name for field in fields(PartitionOutcome)), "undecided")
    results = Results(output, keys, is_spaced=False)
    documents: list[dict[str, Any]] = []
    for cluster in results.each_history(logs):
        undecided = unreplayed_reason(cluster.history)
        forecast, smallest = cluster.whatif(brokers, racks=racks), cluster.smallest_loss()
        results.title(cluster)
        if not forecast.lost_brokers and undecided is None:
            results.text(f"no broker here is registered in rack {', '.join(racks)}")
        else:
            results.missing(cluster.history.gaps)
            for line in whatif_lines(forecast, smallest, show_all=show_all) if undecided is None else [undecided]:
                results.text(line)
        answer = {**asdict(forecast), "smallest_loss": asdict(smallest), "undecided": undecided}
        documents.append({"cluster_id": cluster.cluster_id, **answer})
        results.add(_rows(documents[-1], keys))
    return results.end_documents(documents)


def _rows(document: dict[str, Any], keys: tuple[str, ...]) -> list[dict[str, Any]]:
    cluster_id, undecided = document["cluster_id"], document["undecided"]
    if undecided is not None:
        return [undecided_row(keys, cluster_id, undecided)]
    return [{"cluster_id": cluster_id, **row, "undecided": None} for row in document["outcomes"]]


def broker_ids(given: list[str]) -> set[int]:
    """Broker ids, each text a single id or several with commas between. Raises UsageError."""
    texts = [text.strip() for texts in given for text in texts.split(",")]
    for text in texts:
        if not _BROKER_ID.fullmatch(text) or int(text) >= 2**31:
            raise UsageError(f"--lose: {text!r}: expected a broker id, for example 11, or several, for example 11,12")
    return {int(text) for text in texts}
