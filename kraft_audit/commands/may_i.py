"""`may-i`: whether a node may be started, restarted, emptied or taken out, and which one a roll takes next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kraft_audit.commands.arguments import Gone, NodeLogs, OutputFormat, node_ids_of
from kraft_audit.commands.branch_option import BranchOption, branch_of
from kraft_audit.commands.completion import node_ids
from kraft_audit.commands.ending import UsageError
from kraft_audit.commands.help_text import CommandWithHelp
from kraft_audit.commands.results import Results
from kraft_audit.commands.verdicts import Verdicts, decision_lines, print_lines
from kraft_audit.text.output import Format
from kraft_audit.text.readable import listed
from kraft_codec.errors import ChoiceError

if TYPE_CHECKING:
    from kraft_audit.cluster import Cluster
    from kraft_audit.recovery.may_i.permission import Permission

KEYS: Final = (
    *("cluster_id", "action", "node_id", "verdict", "reason", "next_steps", "running", "cannot_be_lost"),
    *("order", "gone", "stopped", "voters", "restarted", "standalone"),
)


class ActionName(StrEnum):
    """What may be asked about a node, and `roll`, which is about all of them."""

    START = "start"
    RESTART = "restart"
    WIPE = "wipe"
    FORMAT = "format"
    SCALE_IN = "scale-in"
    DELETE_VOLUME = "delete-volume"
    ROLL = "roll"


class WithoutNode(CommandWithHelp):
    """`roll` names no NODE: PATH comes at once."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        given, _, _ = self.make_parser(ctx).parse_args(args=[*args])
        if given.get("action") == ActionName.ROLL:
            place = args.index(ActionName.ROLL) + 1
            args = [*args[:place], NO_NODE, *args[place:]]
        return super().parse_args(ctx, args)


NO_NODE: Final = "0"
"""Stands for NODE where none is named."""
COMMAND_CLASS: Final = WithoutNode


def may_i(
    action: Annotated[
        ActionName,
        typer.Argument(metavar="ACTION", help=f"What you want to do: {', '.join(ActionName)}.", show_default=False),
    ],
    node: Annotated[
        int, typer.Argument(metavar="NODE", help="Id of the node. Leave it out for `roll`.", min=0, show_default=False)
    ],
    logs: NodeLogs,
    gone: Gone = None,
    stopped: Annotated[
        str | None,
        typer.Option(
            "--stopped",
            metavar="IDS",
            show_default=False,
            help="Nodes that are not running, for example 1,2.",
            autocompletion=node_ids,
        ),
    ] = None,
    copied: Annotated[
        str | None,
        typer.Option(
            "--copied",
            metavar="DIR",
            show_default=False,
            help="With `start`: the folder that `salvage` wrote, or copies of the broker's log dirs. Their "
            "records do not count as lost.",
        ),
    ] = None,
    voters: Annotated[
        str | None,
        typer.Option(
            "--voters",
            metavar="IDS",
            show_default=False,
            help="At kraft.version 0: the node ids in controller.quorum.voters on every node, for example 1,2,3.",
        ),
    ] = None,
    standalone: Annotated[
        bool, typer.Option("--standalone", help="With `format`: you would pass --standalone to kafka-storage format.")
    ] = False,
    restarted: Annotated[
        str | None,
        typer.Option(
            "--restarted",
            metavar="IDS",
            show_default=False,
            help="With `roll`: nodes that you have already restarted, for example 1,2.",
        ),
    ] = None,
    branch: BranchOption = None,
    output: OutputFormat = Format.TABLE,
) -> int:
    """Say whether you may start, restart, wipe, format or scale in a node, or delete its volume, and why.

    `roll` says which node to restart next in a rolling restart, or what to wait for. `format` prints the kafka-storage
    command for an emptied metadata disk. `scale-in` prints how to remove a controller from the voters, or a broker from
    the replica lists, and what follows.

    The answer assumes that every voter runs unless --gone or --stopped names it. `yes` means that no committed record
    is lost, whatever those voters do next. `no` comes with the outage that would follow, or with the way in which a
    committed record would be lost. Exit code 0 for yes, 1 for no, 4 for undecided.

    At kraft.version 0 each node takes the voters from its own controller.quorum.voters. A `yes` then says what that
    setting must be. If the disks do not show the setting, pass it as --voters.

    If logs contradict each other, --branch chooses one of them. Nodes that hold another branch must then stay stopped.

    \b
    Examples:
      kraft-audit may-i start 2 samples/divergence.tgz --stopped 3
      kraft-audit may-i wipe 13 samples/elr-06-kill-13-last-replica.tgz
      kraft-audit may-i format 1 samples/dynamic-quorum.tgz --standalone
      kraft-audit may-i scale-in 11 samples/jbod.tgz
      kraft-audit may-i roll samples/divergence.tgz
    """
    _refuse_strays(action, copied=copied is not None, standalone=standalone, restarted=restarted is not None)
    names = {"gone": gone, "stopped": stopped, "voters": voters, "restarted": restarted}
    ids = {name: frozenset(node_ids_of(f"--{name}", text)) for name, text in names.items()}
    said = {**{name: sorted(each) for name, each in ids.items()}, "standalone": standalone}

    def ask(cluster: Cluster) -> Permission:
        from kraft_audit.recovery.may_i.permission import Action, Question, RollQuestion

        if action is ActionName.ROLL:
            return cluster.may_i_roll(RollQuestion(logs.path, **ids))
        question = Question(Action(action), node, logs.path, ids["gone"], ids["stopped"])
        return cluster.may_i(replace(question, voters=ids["voters"], is_standalone=standalone), copied)

    results = Results(output, KEYS)
    verdicts, unknown = Verdicts(results), None
    for cluster in results.each_history(logs, branch=branch_of(branch)):
        try:
            answer = ask(cluster)
        except ChoiceError as problem:
            unknown = problem
            continue
        node_id = answer.next_node if action is ActionName.ROLL else node
        asked = {"cluster_id": cluster.cluster_id, "action": action, "node_id": node_id}
        verdicts.add(answer.verdict, {**asked, **asdict(answer), **said})
        if results.is_table:
            results.title(cluster)
            print_lines(results.out, _lines(answer))
    if unknown is not None and not verdicts.documents:
        raise unknown
    return verdicts.end()


def _refuse_strays(action: ActionName, *, copied: bool, standalone: bool, restarted: bool) -> None:
    """Raises UsageError for an option of another action."""
    for is_given, option, own in (
        (copied, "--copied says what a start truncates", ActionName.START),
        (standalone, "--standalone is an option of kafka-storage format", ActionName.FORMAT),
        (restarted, "--restarted says how far a roll has come", ActionName.ROLL),
    ):
        if is_given and action is not own:
            raise UsageError(f"{option}: leave it out with another action")


def _lines(answer: Permission) -> Iterator[tuple[str, str]]:
    yield from decision_lines(answer.verdict, answer)
    if answer.running:
        yield "", f"Assumed to run: {listed(answer.running)}."
    if answer.cannot_be_lost is not None:
        yield "", answer.cannot_be_lost.text
