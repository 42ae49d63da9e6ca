"""`simulate`: log dirs of an incident that the engine plays, and the shortest schedule of a seed that fails.

The only command that imports the engine.
"""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kraft_audit.commands.arguments import NewFolder, refuse_filled
from kraft_audit.commands.ending import UsageError
from kraft_audit.text.exit_codes import EXIT_FINDINGS, EXIT_FINE
from kraft_audit.text.output import Output
from kraft_audit.text.watched_work import doing

if TYPE_CHECKING:
    from kraft_engine.runs.options import Options

FLEET_CLUSTERS: Final = 10
FLEET_PARTITIONS: Final = 100
FLEET_CHANGES: Final = 1000


def _scenarios() -> list[tuple[str, str]]:
    """What a shell completes: each incident, and what happens there."""
    from kraft_engine import summaries

    return list(summaries().items())


ScenarioArgument = Annotated[
    str,
    typer.Argument(
        metavar="SCENARIO",
        show_default=False,
        help="Name of an incident, `random`, `fleet`, FILE.yaml or FILE.py. `list` prints all names.",
        autocompletion=_scenarios,
    ),
]
OutOption = Annotated[Path | None, NewFolder]
SeedOption = Annotated[int, typer.Option(metavar="N", min=0, help="Random seed. The same seed gives the same bytes.")]
SeedsOption = Annotated[
    int, typer.Option(metavar="N", min=1, help="Simulate this many seeds, from --seed upwards, each into DIR/seed-N.")
]
EventsOption = Annotated[
    int | None, typer.Option(metavar="N", min=1, show_default=False, help="Length of a random run, in events.")
]
ReleaseOption = Annotated[
    str | None,
    typer.Option(metavar="X.Y.Z", show_default=False, help="Kafka release to simulate, with its known bugs."),
]
MetadataVersionOption = Annotated[
    str | None,
    typer.Option(
        metavar="LEVEL", show_default=False, help="metadata.version: 30, 4.3-IV0, or 4.3 for the newest level of 4.3."
    ),
]
ElrOption = Annotated[
    bool | None,
    typer.Option("--elr/--no-elr", show_default=False, help="Turn eligible leader replicas (KIP-966) on or off."),
]
StaticOption = Annotated[
    bool | None,
    typer.Option(
        "--static/--dynamic",
        show_default=False,
        help="Simulate a static quorum (kraft.version 0) or a dynamic one (kraft.version 1).",
    ),
]
VotersOption = Annotated[
    int | None, typer.Option(metavar="N", min=1, show_default=False, help="Number of controllers that vote.")
]
WithoutOption = Annotated[
    list[str] | None, typer.Option(metavar="RULE", show_default=False, help="Turn this safety rule off. Repeatable.")
]
ShrinkOption = Annotated[
    bool, typer.Option("--shrink", help="Print the shortest sequence of events that still breaks an invariant.")
]
BootOption = Annotated[
    bool, typer.Option("--boot", help="Copy the controllers of the last capture, and print how to start Kafka on them.")
]
ClustersOption = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="N", show_default=False, help=f"fleet only: number of clusters. Default: {FLEET_CLUSTERS}."
    ),
]
PartitionsOption = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="N", show_default=False, help=f"fleet only: partitions per cluster. Default: {FLEET_PARTITIONS}."
    ),
]
ChangesOption = Annotated[
    int | None,
    typer.Option(
        min=0,
        metavar="N",
        show_default=False,
        help="fleet only: ISR changes per log, rounded up to a multiple of 128. A larger N appends to the same log. "
        f"Default: {FLEET_CHANGES}.",
    ),
]


def simulate(
    scenario: ScenarioArgument,
    out: OutOption = None,
    seed: SeedOption = 1,
    seeds: SeedsOption = 1,
    events: EventsOption = None,
    release: ReleaseOption = None,
    metadata_version: MetadataVersionOption = None,
    elr: ElrOption = None,
    static: StaticOption = None,
    voters: VotersOption = None,
    without: WithoutOption = None,
    shrink: ShrinkOption = False,
    boot: BootOption = False,
    clusters: ClustersOption = None,
    partitions: PartitionsOption = None,
    changes: ChangesOption = None,
) -> int:
    """Simulate an incident of controllers and brokers, and write the log dirs that they leave.

    The command writes into DIR a folder for each capture, timeline.txt and truth.jsonl. truth.jsonl says what was
    committed, who led, and the state of every partition. Exit code 1 if an invariant breaks, which --without can cause.

    \b
    Examples:
      kraft-audit simulate last-replica-standing --seed 7 --out incident
      kraft-audit simulate random-raft --voters 3 --without one_vote_per_epoch --seeds 50 --shrink
    """
    if scenario == "list":
        return list_scenarios()
    is_fleet = scenario == "fleet"
    if not is_fleet and any(size is not None for size in (clusters, partitions, changes)):
        raise UsageError("--clusters, --partitions and --changes are options of `kraft-audit simulate fleet`")
    options = options_of(scenario, release, metadata_version, elr, static, voters, events, without or [])
    if out is not None:
        refuse_filled(out)
    if shrink:
        return shrink_seeds(scenario, range(seed, seed + seeds), options, out)
    if out is None:
        raise UsageError("simulate needs --out DIR")
    if is_trace(scenario):
        return play_file(scenario, out)
    if is_fleet:
        changes = FLEET_CHANGES if changes is None else changes
        return play_fleet(out, clusters or FLEET_CLUSTERS, partitions or FLEET_PARTITIONS, changes, seed)
    folders = {number: out if seeds == 1 else out / f"seed-{number}" for number in range(seed, seed + seeds)}
    return play_seeds(scenario, folders, options, boot=boot)


def options_of(
    scenario: str,
    release: str | None,
    metadata_version: str | None,
    elr: bool | None,
    static: bool | None,
    voters: int | None,
    events: int | None,
    without: list[str],
) -> Options:
    """What the command line fixes. Raises UsageError where the scenario does not have it."""
    from kraft_engine.runs.options import Options, parse_metadata_version

    try:
        level = parse_metadata_version(metadata_version) if metadata_version is not None else None
        options = Options(release, level, elr, static, voters, events, tuple(without))
        check(scenario, options)
    except ValueError as error:
        raise UsageError(str(error)) from error
    return options


def is_trace(scenario: str) -> bool:
    from kraft_engine.traces.trace_files import is_trace_file

    return is_trace_file(scenario)


def list_scenarios() -> int:
    from kraft_engine import summaries

    lines = Output()
    width = max(map(len, summaries()))
    for name, summary in summaries().items():
        lines.text(f"{name:<{width}}  {summary}")
    return EXIT_FINE


def check(scenario: str, options: Options) -> None:
    """Raises UsageError for an unknown scenario, ValueError for an option that it does not have."""
    from kraft_engine import scenario_names
    from kraft_engine.runs.simulate import RANDOM_KINDS, find_scenario, refuse_options
    from kraft_engine.scenario_files import is_scenario_file

    options.check_release()
    _ = options.switches
    if is_trace(scenario):
        options.refuse_others((), scenario)
    elif scenario == "fleet":
        options.refuse_others((), "fleet")
    elif scenario in RANDOM_KINDS:
        refuse_options(scenario, options)
    elif is_scenario_file(scenario) or scenario in scenario_names():
        find_scenario(scenario, options)
    else:
        near = get_close_matches(scenario, scenario_names(), n=1)
        hint = f", did you mean {near[0]}?" if near else ":"
        raise UsageError(f"no scenario {scenario!r}{hint} `kraft-audit simulate list` lists all")


def play_fleet(out: Path, clusters: int, partitions: int, changes: int, seed: int) -> int:
    from kraft_engine.runs.fleet_logs import simulate_fleet

    fleet = simulate_fleet(out, clusters=clusters, partitions=partitions, changes=changes, seed=seed)
    size = f"{fleet.record_count} records, {fleet.log_bytes} bytes"
    Output().text(f"{fleet.cluster_count} clusters, {size} below {out}")
    return EXIT_FINE


def play_seeds(scenario: str, folders: dict[int, Path], options: Options, *, boot: bool = False) -> int:
    """Plays each seed into its folder. EXIT_FINDINGS where an invariant broke in one of them."""
    from kraft_engine import simulate as play
    from kraft_engine.scenario_files import ScenarioFileError

    lines = Output()
    broken = 0
    for number, (seed, folder) in enumerate(folders.items()):
        doing(f"playing {scenario}, seed {seed}, after {number} of {len(folders)} seeds")
        try:
            result = play(scenario, seed, folder, options)
        except ScenarioFileError as error:
            raise UsageError(str(error)) from error
        events = f"{result.event_count} events, committed to {result.committed_offset}"
        lines.text(f"{result.scenario}, seed {seed}: {events}, below {folder}")
        if result.violation:
            broken += 1
            lines.text(f"INVARIANT BROKEN {result.violation}")
        if len(folders) == 1:
            lines.text(f"captures: {', '.join(result.captures)}")
            if result.raises:
                lines.text(f"check raises: {', '.join(result.raises)}")
        if boot:
            print_boot(folder, lines)
    if len(folders) > 1 and options.without:
        lines.text(f"an invariant broke in {broken} of {len(folders)} seeds")
    return EXIT_FINDINGS if broken else EXIT_FINE


def print_boot(out: Path, lines: Output) -> None:
    """Copies the last capture's controllers to `<out>/boot` and prints the commands that start Kafka on them."""
    from kraft_engine.runs.boot import prepare

    try:
        plan = prepare(out, out.absolute() / "boot")
    except ValueError as error:
        raise UsageError(str(error)) from error
    kind = "static" if plan.is_static else "dynamic"
    lines.text(f"controllers {', '.join(map(str, plan.node_ids))}, {kind} quorum; KAFKA is the folder of a release:")
    for command in plan.commands():
        lines.text(f"  {command}")


def shrink_seeds(scenario: str, seeds: range, options: Options, out: Path | None) -> int:
    """Shortens the first failing seeds and prints the shortest trace; writes it and its log dirs below `out`."""
    from kraft_engine.traces.shrinking import shortest
    from kraft_engine.traces.trace_files import play_trace

    lines = Output()
    try:
        trace = shortest(scenario, seeds, options)
    except ValueError as error:
        raise UsageError(str(error)) from error
    if trace is None:
        lines.text(f"no invariant broke in seeds {seeds.start} to {seeds.stop - 1}")
        return EXIT_FINE
    if out is not None:
        play_trace(trace, out)
        (out / "trace.yaml").write_text(trace.text(), encoding="utf-8")
    for line in trace.text().splitlines():
        lines.text(line)
    return EXIT_FINDINGS


def play_file(file: str, out: Path) -> int:
    """Plays a trace file and writes the log dirs that it leaves. EXIT_FINDINGS where an invariant breaks."""
    from kraft_engine.traces.trace_files import play_trace, read_trace

    lines = Output()
    try:
        result = play_trace(read_trace(Path(file)), out)
    except ValueError as error:
        raise UsageError(str(error)) from error
    lines.text(f"{result.scenario}: {result.event_count} events, committed to {result.committed_offset}, below {out}")
    if result.violation:
        lines.text(f"INVARIANT BROKEN {result.violation}")
    return EXIT_FINDINGS if result.violation else EXIT_FINE
