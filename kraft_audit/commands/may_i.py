"""`may-i`: whether a node may be started, restarted, wiped or removed, or lose its volume."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kraft_audit.commands.arguments import Gone, NodeLogs, OutputFormat, node_ids_of
from kraft_audit.commands.ending import UsageError
from kraft_audit.commands.results import Results
from kraft_audit.commands.verdicts import Verdicts, decision_lines, print_lines
from kraft_audit.text.output import Format
from kraft_audit.text.readable import listed
from kraft_codec.errors import ChoiceError

if TYPE_CHECKING:
    from kraft_audit.recovery.may_i.permission import Permission

KEYS: Final = (
    *("cluster_id", "action", "node_id", "verdict", "reason", "next_steps", "running", "cannot_be_lost"),
    *("gone", "stopped", "voters"),
)


class ActionName(StrEnum):
    """What may be asked about a node."""

    START = "start"
    RESTART = "restart"
    WIPE = "wipe"
    REMOVE = "remove"
    DELETE_VOLUME = "delete-volume"


def may_i(
    action: Annotated[
        ActionName,
        typer.Argument(metavar="ACTION", help=f"What you want to do: {', '.join(ActionName)}.", show_default=False),
    ],
    node: Annotated[int, typer.Argument(metavar="NODE", help="Id of the node.", min=0, show_default=False)],
    logs: NodeLogs,
    gone: Gone = None,
    stopped: Annotated[
        str | None,
        typer.Option(
            "--stopped", metavar="IDS", show_default=False, help="Nodes that are not running, for example 1,2."
        ),
    ] = None,
    copied: Annotated[
        str | None,
        typer.Option(
            "--copied",
            metavar="DIR",
            show_default=False,
            help="What `salvage` wrote, or copies of the broker's log dirs. A start then loses nothing that is there.",
        ),
    ] = None,
    voters: Annotated[
        str | None,
        typer.Option(
            "--voters",
            metavar="IDS",
            show_default=False,
            help="What controller.quorum.voters names on every node, for example 1,2,3; at kraft.version 0 only.",
        ),
    ] = None,
    output: OutputFormat = Format.TABLE,
) -> int:
    """Say whether you may start, restart, wipe or remove a controller or broker, or delete its volume, and why.

    The answer assumes that every voter runs unless --gone or --stopped names it. `yes`: no committed record is lost,
    whatever those voters do next. `no`: the answer describes the outage, or how a committed record gets lost. Exit code
    0 for yes, 1 for no, 4 for undecided.

    At kraft.version 0 each node goes by its own controller.quorum.voters. A `yes` then names what it must read, and
    where the disks do not show it, --voters says it.

    \b
    Examples:
      kraft-audit may-i start 2 samples/divergence.tgz --stopped 3
      kraft-audit may-i wipe 13 samples/elr-06-kill-13-last-replica.tgz
    """
    from kraft_audit.recovery.may_i.permission import Action, Question

    if copied is not None and action is not ActionName.START:
        raise UsageError("--copied says what a start truncates: leave it out with another action")
    question = Question(
        Action(action),
        node,
        logs.path,
        frozenset(node_ids_of("--gone", gone)),
        frozenset(node_ids_of("--stopped", stopped)),
        voters=frozenset(node_ids_of("--voters", voters)),
    )
    results = Results(output, KEYS)
    verdicts, unknown = Verdicts(results), None
    for cluster in results.each_history(logs):
        try:
            answer = cluster.may_i(question, copied)
        except ChoiceError as problem:
            unknown = problem
            continue
        away = {"gone": sorted(question.gone), "stopped": sorted(question.stopped), "voters": sorted(question.voters)}
        asked = {"cluster_id": cluster.cluster_id, "action": action, "node_id": node}
        verdicts.add(answer.verdict, {**asked, **asdict(answer), **away})
        if results.is_table:
            results.title(cluster)
            print_lines(results.out, _lines(answer))
    if unknown is not None and not verdicts.documents:
        raise unknown
    return verdicts.end()


def _lines(answer: Permission) -> Iterator[tuple[str, str]]:
    yield from decision_lines(answer.verdict, answer)
    if answer.running:
        yield "", f"Assumed to run: {listed(answer.running)}."
    if answer.cannot_be_lost is not None:
        yield "", answer.cannot_be_lost.text
