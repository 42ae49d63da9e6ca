"""`kraft-audit`: the commands, and how any of them ends.

Only what `--help` needs is imported here; each command imports the rest when it runs.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Final

import typer

from kraft_audit.commands.check import check
from kraft_audit.commands.completion import answer_shells, completion
from kraft_audit.commands.diverge import diverge
from kraft_audit.commands.doctor import doctor
from kraft_audit.commands.dump import dump
from kraft_audit.commands.ending import (
    EXIT_BUG,
    EXIT_UNREADABLE,
    EXIT_USAGE,
    UsageError,
    complain,
    guarded,
    has_output,
    use_named_output,
    use_utf8,
)
from kraft_audit.commands.evidence import evidence
from kraft_audit.commands.export import export
from kraft_audit.commands.maintain import maintain
from kraft_audit.commands.partitions import partitions
from kraft_audit.commands.planning import recover_plan, whatif
from kraft_audit.commands.quality import quality
from kraft_audit.commands.quorum import quorum
from kraft_audit.commands.report import report
from kraft_audit.commands.rules import explain, rules
from kraft_audit.commands.run import run
from kraft_audit.commands.state import diff, state
from kraft_audit.commands.tables import tables
from kraft_audit.commands.timeline import timeline
from kraft_audit.commands.voters import voters

FAULT_CHARACTERS_MAX: Final = 200
COLLECT_AFTER: Final = (50_000, 20, 50)
"""Thresholds of Python's garbage collector, which looks for objects that refer to each other in circles.

A command makes many rows and findings, which live until it ends, and hardly any circles. With Python's own thresholds
the collector goes through all of them again and again, which took a tenth of a command's time.
"""
FLEET_CLUSTERS: Final = 10
FLEET_PARTITIONS: Final = 100
FLEET_CHANGES: Final = 1000
Command = Callable[..., int | None]


def simulate(
    scenario: Annotated[
        str, typer.Argument(metavar="SCENARIO", show_default=False, help="An incident, `random`, `fleet` or `list`.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", show_default=False, help="A new or empty folder.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Equal seeds give equal bytes.")] = 1,
    clusters: Annotated[int | None, typer.Option(min=1, show_default=str(FLEET_CLUSTERS), help="Of a fleet.")] = None,
    partitions: Annotated[
        int | None, typer.Option(min=1, show_default=str(FLEET_PARTITIONS), help="Of each cluster of a fleet.")
    ] = None,
) -> None:
    """Play an incident on simulated controllers and brokers, and write the log dirs that they leave.

    DIR gets a folder a capture, truth.jsonl (what was committed, who led, every partition) and timeline.txt.

    \b
    Examples:
      kraft-audit simulate list
      kraft-audit simulate last-replica-standing --seed 7 --out incident
    """
    from kraft_audit.output import Output
    from kraft_engine import scenario_names, summaries
    from kraft_engine import simulate as play
    from kraft_engine.fleet import simulate_fleet

    lines = Output()
    if scenario == "list":
        width = max(map(len, summaries()))
        for name, summary in summaries().items():
            lines.text(f"{name:<{width}}  {summary}")
        return
    if scenario not in (*scenario_names(), "fleet"):
        near = get_close_matches(scenario, scenario_names(), n=1)
        hint = f", perhaps {near[0]}" if near else ""
        raise UsageError(f"no scenario {scenario!r}{hint}: `kraft-audit simulate list` names them")
    if scenario != "fleet" and (clusters is not None or partitions is not None):
        raise UsageError("--clusters and --partitions are of a fleet: `kraft-audit simulate fleet`")
    if out is None:
        raise UsageError("simulate needs --out DIR")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"--out: {out}: expected a new or empty folder")
    if scenario == "fleet":
        fleet = simulate_fleet(
            out,
            clusters=clusters or FLEET_CLUSTERS,
            partitions=partitions or FLEET_PARTITIONS,
            changes=FLEET_CHANGES,
            seed=seed,
        )
        lines.text(f"{fleet.cluster_count} clusters, {fleet.record_count} records, {fleet.log_bytes} bytes below {out}")
        return
    told = play(scenario, seed, out)
    lines.text(f"{scenario}, seed {seed}: {told.event_count} events, committed to {told.committed_offset}, below {out}")
    lines.text(f"captures: {', '.join(told.captures)}")
    if told.raises:
        lines.text(f"check raises: {', '.join(told.raises)}")


# Each command and what the list of commands says of it. The first need neither Spark nor Java.
LAPTOP_COMMANDS: Final[tuple[tuple[Command, str], ...]] = (
    (check, "What was unsafe, when, why, and what to do"),
    (explain, "One rule: when it is raised, why it matters"),
    (rules, "All rules"),
    (whatif, "What a crash of these brokers would do now"),
    (recover_plan, "What can be done for partitions without a leader"),
    (evidence, "Findings and what is behind them, redacted and hashed"),
    (report, "Pages for a browser; findings and figures as files"),
    (timeline, "What happened: a line an event, a column a node"),
    (quorum, "Captures side by side, and what they prove committed"),
    (voters, "History of the voter set, reverted changes too"),
    (state, "Everything as after an offset or time"),
    (diff, "What changed between two offsets or times"),
    (partitions, "Every change of leader, ISR and ELR with its cause"),
    (diverge, "Where logs part, and who holds what there"),
    (dump, "Every batch and record, as rows or as Kafka's tool"),
    (simulate, "Log dirs of a simulated incident, and its truth"),
)
LAKE_COMMANDS: Final[tuple[tuple[Command, str], ...]] = (
    (run, "A fleet's log dirs into Delta tables, on Spark"),
    (tables, "What lies in a lake's tables"),
    (quality, "Hold a lake's tables against their contracts"),
    (export, "A range of the archived log as a log dir again"),
    (maintain, "Join small files, retention, VACUUM"),
    (completion, "A shell's script to complete commands and options"),
    (doctor, "Whether this machine can do it, and the remedies"),
)

app = typer.Typer(
    name="kraft-audit",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help is there in half the time, and its examples can be copied
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)


def command_name(command: Command) -> str:
    """What is typed: `recover-plan` for recover_plan."""
    return command.__name__.replace("_", "-")


for _command, _summary in (*LAPTOP_COMMANDS, *LAKE_COMMANDS):
    app.command(command_name(_command), short_help=_summary)(guarded(_command))


def _version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version

        sys.stdout.write(f"kraft-audit {version('kraft-audit')}\n")
        raise typer.Exit


@app.callback()
def kraft_audit(
    version: Annotated[bool, typer.Option("--version", help="Print the version.", callback=_version)] = False,
) -> None:
    """Audit the metadata logs of Apache Kafka's KRaft controllers: what was unsafe, when, and why.

    PATH is a log dir, a node dir, a folder of node dirs, a folder of captures, or an archive (.tar, .tar.gz, .tgz or
    .zip) of any of these, here or in an object store. Nothing is ever written there, and no live cluster is asked. run
    and tables need the extra: pip install 'kraft-audit[spark]'.

    Exit codes: 0 fine, 1 findings at or above --fail-on, 2 usage, 3 unreadable input or unwritable output.

    \b
    Examples:
      kraft-audit check samples/elr-06-kill-13-last-replica.tgz
      kraft-audit timeline samples/divergence
    """


def main() -> None:
    """The program: runs a command, and leaves with its exit code."""
    if not has_output():
        sys.exit(EXIT_UNREADABLE)
    use_named_output()
    use_utf8()
    arguments = sys.argv[1:]
    if arguments and arguments[0] in {command_name(command) for command, _ in LAPTOP_COMMANDS}:
        sys.meta_path.insert(0, _NoPandas())
        gc.set_threshold(*COLLECT_AFTER)
    sys.exit(run_command(arguments))


class _NoPandas:
    """pyarrow imports pandas, where there is one, to make its first array: half a second and 50 MB for nothing here."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not used by this command", name=name)


def run_command(arguments: list[str]) -> int:
    """The exit code of a command line; whatever goes wrong is one line on stderr."""
    answer_shells()
    try:
        code = app(arguments, prog_name="kraft-audit", standalone_mode=False)
    except typer.Abort:
        return 130
    except Exception as error:
        if type(error).__name__ == "NoArgsIsHelpError" and hasattr(error, "ctx"):
            sys.stderr.write(f"{error.ctx.get_help()}\n")
            return EXIT_USAGE
        if not hasattr(error, "format_message"):
            if os.environ.get("KRAFT_AUDIT_TRACEBACK"):
                raise
            what = f"{type(error).__name__}: {error}".splitlines()[0][:FAULT_CHARACTERS_MAX]
            complain(f"a fault of kraft-audit itself: {what} (KRAFT_AUDIT_TRACEBACK=1 tells more)")
            return EXIT_BUG
        from kraft_audit.commands.usage import usage_text

        complain(usage_text(error))
        return EXIT_USAGE
    return code if isinstance(code, int) else 0
