"""Options that several commands share: an option has the same name and the same help in every command."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from kraft_audit.commands.completion import captures, node_ids
from kraft_audit.commands.ending import UsageError, remark
from kraft_audit.text.output import Format
from kraft_audit.text.readable import is_time, time_ms_of, time_text
from kraft_codec.errors import InputError, MissingPackageError

if TYPE_CHECKING:
    from kraft_audit.cluster import Cluster
    from kraft_audit.replay.cluster_state import ClusterState, Moment, Place
    from kraft_audit.rules.rule_model import Finding, RuleSettings, Waiver
    from kraft_audit.rules.rule_settings import WaiverCount

Path = Annotated[
    str,
    typer.Argument(
        metavar="PATH",
        show_default=False,
        help="Log dir or node dir, a folder or archive of them, or a URI. Repeatable.",
    ),
]
PathOrLake = Annotated[
    str,
    typer.Argument(
        metavar="PATH", show_default=False, help="Log dir or node dir, a folder or archive of them, a URI, or a lake."
    ),
]
LakeBeside = Annotated[
    str | None,
    typer.Option("--lake", metavar="LAKE", show_default=False, help="Also use this lake's copies of these logs."),
]
LakePath = Annotated[str, typer.Argument(metavar="LAKE", show_default=False, help="Folder or URI of the Delta tables.")]
OutputFormat = Annotated[
    Format, typer.Option("--output", "-o", help="table is for people, the others are for programs.")
]
As = Annotated[
    list[str] | None,
    typer.Option(
        "--as",
        metavar="CLUSTER=NODE",
        show_default=False,
        help="Cluster id and node id of a log without meta.properties. Repeat it in the order of the PATHs.",
    ),
]
ClusterId = Annotated[
    str | None,
    typer.Option("--cluster", metavar="ID", show_default=False, help="Use only the cluster with this cluster.id."),
]
CaptureName = Annotated[
    str | None,
    typer.Option(
        "--capture",
        metavar="NAME",
        show_default=False,
        help="Use only the capture (folder) with this name.",
        autocompletion=captures,
    ),
]
Defaults = Annotated[
    list[str] | None,
    typer.Option(
        "--default",
        metavar="NAME=VALUE",
        show_default=False,
        help="Static broker config (from server.properties, not in the log), for example "
        "min.insync.replicas=2. Repeatable.",
    ),
]
NodeConfigs = Annotated[
    list[str] | None,
    typer.Option(
        "--config",
        metavar="ID=FILE",
        show_default=False,
        help="server.properties of node ID, if no copy of it lies in its node dir or above. Repeatable.",
    ),
]
SettingsFile = Annotated[
    FilePath | None,
    typer.Option(
        "--settings",
        metavar="FILE",
        show_default=False,
        help="Thresholds of the rules, in the format of conf/rules.yaml.",
    ),
]
WaiversFile = Annotated[
    FilePath | None,
    typer.Option(
        "--waivers",
        metavar="FILE",
        show_default=False,
        help="Findings that you accept, in the format of conf/waivers.example.yaml.",
    ),
]
Running = Annotated[
    bool,
    typer.Option(
        "--running", help="The nodes are running, so logs that have stopped growing mean that there is no leader."
    ),
]
Gone = Annotated[
    str | None,
    typer.Option(
        "--gone",
        metavar="IDS",
        show_default=False,
        help="Nodes that are lost for good, with their disks, for example 1,2.",
        autocompletion=node_ids,
    ),
]
FromOffset = Annotated[
    int | None, typer.Option("--from", metavar="OFFSET", show_default=False, help="Start at this offset.")
]
ToOffset = Annotated[
    int | None, typer.Option("--to", metavar="OFFSET", show_default=False, help="Stop before this offset.")
]
NewFolder = typer.Option("--out", metavar="DIR", show_default=False, help="Write into this new or empty folder.")
"""The option of commands that write files, which are never written into a folder that has some."""
EveryLine = Annotated[bool, typer.Option("--all", help="Show every line, not a summary.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress on the terminal.")]


@dataclass(frozen=True, slots=True)
class Logs:
    """What a command reads: PATH and the options about it that commands share."""

    path: Path
    cluster: ClusterId = None
    capture: CaptureName = None
    named: As = None
    quiet: Quiet = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class ConfiguredLogs(Logs):
    """Logs with the static broker configs that no log holds."""

    default: Defaults = None


@dataclass(frozen=True, slots=True)
class NodeLogs(ConfiguredLogs):
    """Logs with the configurations of their nodes, which decide who votes at kraft.version 0."""

    config: NodeConfigs = None


@dataclass(frozen=True, slots=True)
class LogsOrLake(ConfiguredLogs):
    """Logs, a lake that read them, or both: the lake still holds what disks have lost."""

    path: PathOrLake
    lake: LakeBeside = None


@dataclass(frozen=True, slots=True)
class JudgedLogs(NodeLogs):
    """What rules judge: logs, thresholds and waivers, and what the operator knows that no disk shows."""

    settings: SettingsFile = None
    waivers: WaiversFile = None
    running: Running = False
    gone: Gone = None

    def judge(self, only: list[str] | None = None) -> Callable[[Cluster], tuple[list[Finding], WaiverCount | None]]:
        """What judges a cluster: its findings, waived ones marked, and how many were waived, where a file says so.

        The files are read here, once. Raises UsageError, InputError.
        """
        from kraft_audit.rules.rule_settings import apply_waivers

        thresholds, waivers = thresholds_of(self.settings), waivers_of(self.waivers)

        def judged(cluster: Cluster) -> tuple[list[Finding], WaiverCount | None]:
            findings = cluster.check(thresholds, only=only)
            return apply_waivers(findings, waivers, time.time_ns() // 1_000_000) if waivers else (findings, None)

        return judged


@dataclass(frozen=True, slots=True)
class JudgedLogsOrLake(JudgedLogs):
    """Logs that rules judge, or a lake whose runs have judged them."""

    path: PathOrLake


_Loaded = TypeVar("_Loaded")
POINT: Final = "OFFSET|TIME|committed"
"""A point of the log, as `Place.parse` takes it."""
POINT_HELP: Final = "after this offset, at this time (ISO 8601, UTC), or after the last committed record"
_IDENTITY: Final = re.compile(r"([A-Za-z0-9_-]{22})=([0-9]{1,9})")
SURELY_A_TIME: Final = 10**12
NODES_MAX: Final = 1_000_000
"""An offset of so many digits is milliseconds since 1970, of 2001 or later, pasted from a column of times."""


def node_ids_of(option: str, text: str | None) -> list[int]:
    """The node ids of an option such as 1,2 or 4-20. Raises UsageError."""
    try:
        return sorted({each for part in text.split(",") for each in _ids_in(part)}) if text else []
    except ValueError:
        raise UsageError(f"{option}: {text!r}: expected node ids separated by commas, for example 1,2") from None


def _ids_in(part: str) -> range:
    """One id, or those of a span. Raises ValueError."""
    first, _, last = part.partition("-")
    span = range(int(first), int(last or first) + 1)
    if not 0 < len(span) <= NODES_MAX:
        raise ValueError(part)
    return span


def identities(texts: Sequence[str] | None) -> list[tuple[str, int]]:
    """(cluster id, node id) of each CLUSTER=NODE of --as. Raises UsageError."""
    nodes = []
    for text in texts or ():
        match = _IDENTITY.fullmatch(text)
        if match is None:
            raise UsageError(f"--as: {text!r}: expected CLUSTER=NODE, for example SPA6Lw-19VaaSAxl6jMkhw=3")
        nodes.append((match[1], int(match[2])))
    return nodes


def configurations_of(texts: Sequence[str] | None) -> dict[int, str]:
    """The files of --config by node id. Raises UsageError."""
    files = {}
    for text in texts or ():
        node_id, _, file = text.partition("=")
        if not re.fullmatch("[0-9]{1,9}", node_id) or not file:
            raise UsageError(f"--config: {text!r}: expected ID=FILE, for example 3=/etc/kafka/server.properties")
        if int(node_id) in files:
            raise UsageError(f"--config: node {int(node_id)} is named twice")
        files[int(node_id)] = file
    return files


def since_option(text: str) -> int:
    """Milliseconds since the epoch of a time in ISO 8601, UTC where it names no zone. Raises UsageError."""
    try:
        return time_ms_of(text)
    except ValueError:
        raise UsageError(f"--since: {text!r}: expected a time, for example 2026-11-24T08:00") from None


LAKE_PACKAGES: Final = ("deltalake", "pydantic")
SPARK_PACKAGES: Final = ("pyspark", "delta", *LAKE_PACKAGES)
QUALITY_PACKAGES: Final = ("great_expectations", "duckdb_engine", *LAKE_PACKAGES)


def need_packages(command: str, names: Sequence[str], extra: str) -> None:
    """Raises MissingPackageError with the remedy where packages that a command needs are not installed."""
    missing = [name for name in names if find_spec(name) is None]
    if missing:
        raise MissingPackageError(f"{command} needs {', '.join(missing)}", extra)


def refuse_filled(out: FilePath) -> None:
    """Raises UsageError for an --out that is neither a new nor an empty folder."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"--out: {out}: expected a new or empty folder")


def check_range(from_offset: int | None, to_offset: int | None) -> None:
    """Raises UsageError for a range of offsets that holds none."""
    if from_offset is not None and to_offset is not None and to_offset <= from_offset:
        raise UsageError(f"--to: {to_offset}: expected an offset above --from {from_offset}")


def need_jinja(command: str) -> None:
    """Raises UsageError where what renders pages is not installed."""
    if find_spec("jinja2") is None:
        raise UsageError(f"{command} needs jinja2: pip install jinja2")


def refuse_within(out: FilePath, source: str, option: str = "--out") -> None:
    """Raises UsageError for a target among what is read: nothing is ever written there."""
    from kraft_codec.storage.opener import file_path
    from kraft_codec.storage.path_patterns import is_address, matching_paths

    target = os.path.realpath(out)
    for path in [source] if is_address(source) else matching_paths(source):
        among = os.path.realpath(file_path(path) or path)
        if target == among or target.startswith(among.rstrip("/") + "/"):
            raise UsageError(f"{option}: {out} lies in {path}, which is only read: choose a folder elsewhere")


def rule_id(text: str) -> str:
    """The id of a rule that is named by id or name. Raises UsageError, with the nearest name."""
    from kraft_audit.findings import rule_pages
    from kraft_audit.rules import registry

    rule = registry.find_rule(text)
    if rule is None:
        near = rule_pages.near(text)
        raise UsageError(f"no rule {text!r}{f', did you mean {near}?' if near else ':'} `kraft-audit rules` lists all")
    return rule.id


def thresholds_of(file: FilePath | None) -> dict[str, RuleSettings]:
    """The thresholds that a file sets, by rule; none without a file. Raises UsageError, InputError."""
    from kraft_audit.rules.rule_settings import load_rule_settings

    return {} if file is None else _loaded(load_rule_settings, file)


def waivers_of(file: FilePath | None) -> tuple[Waiver, ...]:
    """The waivers of a file; none without a file. Raises UsageError, InputError."""
    from kraft_audit.rules.rule_settings import load_waivers

    return () if file is None else _loaded(load_waivers, file)


def _loaded(load: Callable[[FilePath], _Loaded], file: FilePath) -> _Loaded:
    from kraft_audit.rules.rule_settings import RuleSettingsError

    try:
        return load(file)
    except RuleSettingsError as problem:
        raise UsageError(str(problem)) from None
    except (OSError, UnicodeDecodeError) as problem:
        raise InputError(str(file), getattr(problem, "strerror", None) or "no UTF-8 text") from None


def place_of(option: str, text: str | None) -> Place:
    """The place that an option names; the end of the log for None. Raises UsageError."""
    from kraft_audit.replay.cluster_state import Place

    try:
        return Place.parse(text)
    except ValueError as problem:
        raise UsageError(f"{option}: {problem}") from None


def state_at_place(moment: Moment, place: Place, option: str = "--at") -> ClusterState:
    """The state there; says on stderr where the place lies before or after the log."""
    _remark_on_time(moment, place, option)
    state = moment.state(place)
    last = moment.end_offset - 1
    if place.offset is not None and place.offset > last:
        remark(f"{option} {place.offset}: the log ends with offset {last}, this is the state there")
    elif state.offset < 0 and (place.offset is not None or place.time_ms is not None):
        remark(f"{option}: the log starts later, so no state is known at that point")
    return state


def _remark_on_time(moment: Moment, place: Place, option: str) -> None:
    """Says on stderr that a time is after the log's end, or how to write a time that was given as an offset."""
    if place.offset is not None:
        if max(moment.end_offset, SURELY_A_TIME) <= place.offset and is_time(place.offset):
            written = time_text(place.offset).replace(" ", "T")
            remark(f"{option} {place.offset}: a plain number is an offset; write that time as {written}Z")
        return
    last_ms = moment.last_ms()
    if place.time_ms is not None and last_ms is not None and place.time_ms > last_ms:
        last = moment.end_offset - 1
        remark(f"{option}: the log ends at {time_text(last_ms)} UTC with offset {last}, this is the state there")
