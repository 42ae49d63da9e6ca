"""`--authorizer-log`: Kafka's authorizer log, which says who made a change."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kraft_audit.commands.ending import UsageError, remark
from kraft_audit.text.readable import plural

if TYPE_CHECKING:
    from kraft_audit.cluster import Cluster
    from kraft_audit.findings.authorizer_log import AuthorizerLog
    from kraft_audit.findings.change_authors import AuthoredChange

AuthorizerLogs = Annotated[
    list[Path] | None,
    typer.Option(
        "--authorizer-log",
        metavar="FILE",
        show_default=False,
        help="File or folder of Kafka's authorizer log, which says who made each change. Repeatable.",
    ),
]
AuthorizerZone = Annotated[
    str,
    typer.Option(
        "--authorizer-zone",
        metavar="ZONE",
        help="Time zone of the authorizer log, for example +02:00 or Europe/Berlin.",
    ),
]
DENIED_ALONE: Final = (
    "it holds only denied requests: set kafka.authorizer.logger to DEBUG on the controllers to log allowed ones"
)


def read_log(paths: Sequence[Path] | None, zone: str) -> AuthorizerLog | None:
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
        remark(f"--authorizer-log: {plural(log.unread_count, 'line')} skipped: without a time, or ambiguous")
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
        remark(f"--authorizer-log: its times fit the changes better with --authorizer-zone {zone}")
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
