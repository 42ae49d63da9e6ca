"""`may-i`: whether a node may be started, restarted, wiped or removed, or lose its volume."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kraft_audit.commands.arguments import ConfiguredLogs, Gone, OutputFormat, node_ids_of
from kraft_audit.commands.results import Results
from kraft_audit.commands.verdicts import Verdicts, decision_lines, print_lines
from kraft_audit.text.output import Format
from kraft_audit.text.readable import listed
from kraft_codec.errors import ChoiceError

if TYPE_CHECKING:
    from kraft_audit.recovery.may_i.permission import Permission

KEYS: Final = (
    *("cluster_id", "action", "node_id", "verdict", "reason", "next_steps", "running", "cannot_be_lost"),
    *("gone", "stopped"),
)


class ActionName(StrEnum):
    """What may be asked about a node."""

    START = "start"
    RESTART = "restart"
    WIPE = "wipe"
    REMOVE = "remove"
    DELETE_VOLUME = "delete-volume"


def may_i(
    action: Annotated[ActionName, typer.Argument(metavar="ACTION", help=", ".join(ActionName), show_default=False)],
    node: Annotated[int, typer.Argument(metavar="NODE", help="Node id.", min=0, show_default=False)],
    logs: ConfiguredLogs,
    gone: Gone = None,
    stopped: Annotated[
        str | None, typer.Option("--stopped", metavar="IDS", show_default=False, help="Nodes that do not run, as 1,2.")
    ] = None,
    output: OutputFormat = Format.TABLE,
) -> int:
    """Say whether a controller or broker may be started, restarted, wiped, removed, or lose its volume, and why.

    All voters that are neither gone nor stopped are assumed to run. Yes: whatever they do next, no committed record is
    lost. No: the schedule that loses one, or the outage, is named. Exit code 0 yes, 1 no, 4 undecided.

    \b
    Examples:
      kraft-audit may-i start 2 samples/divergence.tgz --stopped 3
      kraft-audit may-i wipe 13 samples/elr-06-kill-13-last-replica.tgz
    """
    from kraft_audit.recovery.may_i.permission import Action, Question

    question = Question(
        Action(action),
        node,
        logs.path,
        frozenset(node_ids_of("--gone", gone)),
        frozenset(node_ids_of("--stopped", stopped)),
    )
    results = Results(output, KEYS)
    verdicts, unknown = Verdicts(results), None
    for cluster in results.each_history(logs):
        try:
            answer = cluster.may_i(question)
        except ChoiceError as problem:
            unknown = problem
            continue
        away = {"gone": sorted(question.gone), "stopped": sorted(question.stopped)}
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
