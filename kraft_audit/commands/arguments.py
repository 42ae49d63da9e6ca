"""Options that several commands share, and what their texts mean: a concept has the same name in every command."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from kraft_audit.commands.ending import UsageError, remark
from kraft_audit.text.output import Format
from kraft_audit.text.readable import is_time, plural, time_text
from kraft_codec.errors import InputError, MissingPackageError
from kraft_codec.schemas import Dialect

if TYPE_CHECKING:
    from kraft_audit.cluster import Cluster
    from kraft_audit.findings.authorizer_log import AuthorizerLog
    from kraft_audit.findings.change_authors import AuthoredChange
    from kraft_audit.replay.cluster_state import ClusterState, Moment, Place
    from kraft_audit.rules.rule_model import Finding, RuleSettings, Waiver
    from kraft_audit.rules.rule_settings import WaiverCount

Path = Annotated[
    str, typer.Argument(metavar="PATH", show_default=False, help="Log dir, node dir, folder or archive of them, URI.")
]
PathOrLake = Annotated[
    str,
    typer.Argument(metavar="PATH", show_default=False, help="Log dir, node dir, folder or archive of them, URI, lake."),
]
LakeBeside = Annotated[
    str | None,
    typer.Option("--lake", metavar="LAKE", show_default=False, help="Its copies of these logs too, beside the disks."),
]
LakePath = Annotated[str, typer.Argument(metavar="LAKE", show_default=False, help="Folder or URI of the Delta tables.")]
OutputFormat = Annotated[Format, typer.Option("--output", "-o", help="Table for people; the others for programs.")]
As = Annotated[
    list[str] | None,
    typer.Option(
        "--as",
        metavar="CLUSTER=NODE",
        show_default=False,
        help="Whose log it is, for each PATH without meta.properties, in their order.",
    ),
]
ClusterId = Annotated[
    str | None, typer.Option("--cluster", metavar="ID", show_default=False, help="Only the cluster of this id.")
]
CaptureName = Annotated[
    str | None,
    typer.Option("--capture", metavar="NAME", show_default=False, help="Only the capture (folder) of this name."),
]
DialectOption = Annotated[
    Dialect, typer.Option("--dialect", help="Membership protocol that wrote the log, as its owner knows.")
]
Defaults = Annotated[
    list[str] | None,
    typer.Option(
        "--default",
        metavar="NAME=VALUE",
        show_default=False,
        help="Static broker config that no log holds, as min.insync.replicas=2.",
    ),
]
SettingsFile = Annotated[
    FilePath | None,
    typer.Option("--settings", metavar="FILE", show_default=False, help="Thresholds of rules, as conf/rules.yaml."),
]
WaiversFile = Annotated[
    FilePath | None,
    typer.Option(
        "--waivers", metavar="FILE", show_default=False, help="Accepted findings: a file as conf/waivers.example.yaml."
    ),
]
Running = Annotated[
    bool, typer.Option("--running", help="The nodes run and write below PATH: logs that stand still show no leader.")
]
Gone = Annotated[
    str | None,
    typer.Option("--gone", metavar="IDS", show_default=False, help="Nodes that are lost with their disks, as 1,2."),
]
FromOffset = Annotated[
    int | None, typer.Option("--from", metavar="OFFSET", show_default=False, help="From this offset on.")
]
ToOffset = Annotated[int | None, typer.Option("--to", metavar="OFFSET", show_default=False, help="Below this offset.")]
EveryLine = Annotated[bool, typer.Option("--all", help="Every line, not a summary.")]


@dataclass(frozen=True, slots=True)
class Logs:
    """What a command reads: PATH and the options about it that commands share."""

    path: Path
    cluster: ClusterId = None
    capture: CaptureName = None
    dialect: DialectOption = Dialect.KIP853
    named: As = None


@dataclass(frozen=True, slots=True)
class ConfiguredLogs(Logs):
    """Logs with the static broker configs that no log holds."""

    default: Defaults = None


@dataclass(frozen=True, slots=True)
class LogsOrLake(ConfiguredLogs):
    """Logs, a lake that read them, or both: the lake still holds what disks have lost."""

    path: PathOrLake
    lake: LakeBeside = None


@dataclass(frozen=True, slots=True)
class JudgedLogs(ConfiguredLogs):
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


_Loaded = TypeVar("_Loaded")
AT_HELP: Final = "After the record at this offset, at this time (ISO 8601, UTC), or `committed`."
_IDENTITY: Final = re.compile(r"([A-Za-z0-9_-]{22})=([0-9]{1,9})")
SURELY_A_TIME: Final = 10**12
"""An offset of so many digits is milliseconds since 1970, of 2001 or later, pasted from a column of times."""


def node_ids_of(option: str, text: str | None) -> list[int]:
    """The node ids of an option such as 1,2. Raises UsageError."""
    try:
        return sorted({int(part) for part in text.split(",")}) if text else []
    except ValueError:
        raise UsageError(f"{option}: {text!r}: expected node ids separated by commas, as 1,2") from None


def identities(texts: Sequence[str] | None) -> list[tuple[str, int]]:
    """(cluster id, node id) of each CLUSTER=NODE of --as. Raises UsageError."""
    nodes = []
    for text in texts or ():
        match = _IDENTITY.fullmatch(text)
        if match is None:
            raise UsageError(f"--as: {text!r}: expected CLUSTER=NODE, as SPA6Lw-19VaaSAxl6jMkhw=3")
        nodes.append((match[1], int(match[2])))
    return nodes


def time_option(option: str, text: str) -> int:
    """Milliseconds since the epoch of a time in ISO 8601, UTC where it names no zone. Raises UsageError."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{option}: {text!r}: expected a time, as 2026-11-24T08:00") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


LAKE_PACKAGES: Final = ("deltalake", "pydantic")
SPARK_PACKAGES: Final = ("pyspark", "delta", *LAKE_PACKAGES)


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


def refuse_within(out: FilePath, source: str, option: str = "--out") -> None:
    """Raises UsageError for a target among what is read: nothing is ever written there."""
    from kraft_codec.storage.opener import file_path
    from kraft_codec.storage.path_patterns import is_address, matching_paths

    target = os.path.realpath(out)
    for path in [source] if is_address(source) else matching_paths(source):
        among = os.path.realpath(file_path(path) or path)
        if target == among or target.startswith(among.rstrip("/") + "/"):
            raise UsageError(f"{option}: {out}: lies in {path}, where nothing is ever written")


def rule_id(text: str) -> str:
    """The id of a rule that is named by id or name. Raises UsageError, with the nearest name."""
    from kraft_audit.findings import rule_pages
    from kraft_audit.rules import registry

    rule = registry.find_rule(text)
    if rule is None:
        near = rule_pages.near(text)
        raise UsageError(f"no rule {text!r}{f', perhaps {near}' if near else ''}: `kraft-audit rules` lists them")
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
        remark(f"{option}: nothing is known of before the log's first record")
    return state


def _remark_on_time(moment: Moment, place: Place, option: str) -> None:
    """Says on stderr that a time is after the log's end, or how to write a time that was given as an offset."""
    if place.offset is not None:
        if max(moment.end_offset, SURELY_A_TIME) <= place.offset and is_time(place.offset):
            written = time_text(place.offset).replace(" ", "T")
            remark(f"{option} {place.offset}: a plain number is an offset; that time is written {written}Z")
        return
    last_ms = moment.last_ms()
    if place.time_ms is not None and last_ms is not None and place.time_ms > last_ms:
        last = moment.end_offset - 1
        remark(f"{option}: the log ends at {time_text(last_ms)} UTC with offset {last}, this is the state there")


AuthorizerLogs = Annotated[
    list[FilePath] | None,
    typer.Option(
        "--authorizer-log", metavar="FILE", show_default=False, help="Kafka's authorizer log, to say who made a change."
    ),
]
AuthorizerZone = Annotated[
    str, typer.Option("--authorizer-zone", metavar="ZONE", help="Of its times, as +02:00 or Europe/Berlin.")
]
DENIED_ALONE: Final = (
    "it has denied requests alone, as at the level INFO: set kafka.authorizer.logger to DEBUG on the controllers"
)


def read_log(paths: Sequence[FilePath] | None, zone: str) -> AuthorizerLog | None:
    """What the files of --authorizer-log hold; None without any. Says on stderr what is missing in them.

    Raises UsageError, InputError.
    """
    from kraft_audit.findings.authorizer_log import read_authorizer_logs, time_zone

    if not paths:
        return None
    try:
        log = read_authorizer_logs(paths, time_zone(zone))
    except ValueError as problem:
        raise UsageError(f"--authorizer-zone: {problem}") from None
    if not log.allowed_count:
        remark(f"--authorizer-log: {DENIED_ALONE}")
    if log.unread_count:
        remark(f"--authorizer-log: {plural(log.unread_count, 'line')} left out: without a time, or with two meanings")
    return log


def authored_changes(cluster: Cluster, log: AuthorizerLog | None) -> list[AuthoredChange]:
    """The changes of a cluster with their authors; says on stderr where the log's times are hours away from them."""
    changes = cluster.changes(log)
    if log is None:
        return changes
    from kraft_audit.findings.change_authors import other_zone_minutes

    minutes = other_zone_minutes([each.change for each in changes], log.requests)
    if minutes is not None:
        read_as = (
            log.zone.utcoffset(datetime.fromtimestamp(log.requests[0].time_ms / 1000, UTC).replace(tzinfo=None))
            or timedelta()
        )
        hours, rest = divmod(abs(minutes := minutes + round(read_as.total_seconds() / 60)), 60)
        zone = f"{'-' if minutes < 0 else '+'}{hours:02d}:{rest:02d}" if minutes else "UTC"
        remark(f"--authorizer-log: its times look like those of --authorizer-zone {zone}")
    return changes


def who_in_words(authored: Sequence[AuthoredChange]) -> str:
    """How many changes there are, and of how many it is known whose they are."""
    from kraft_audit.findings.change_authors import Confidence

    authors = [each.author for each in authored if each.author is not None]
    text = plural(len(authored), "change")
    if not authors:
        return text
    known = [author.principal for author in authors if author.principal is not None]
    undecided = sum(author.confidence is Confidence.UNDECIDED for author in authors)
    unnamed = len(authors) - len(known) - undecided
    return f"{text}: {len(known)} by {plural(len(set(known)), 'user')}, {undecided} undecided, {unnamed} unnamed"
