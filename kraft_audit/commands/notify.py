"""`notify`: tell people what opened, got worse or was resolved in a lake since the last call."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from kraft_audit.commands.arguments import LAKE_PACKAGES, LakePath, OutputFormat, need_packages
from kraft_audit.commands.following import notices_of
from kraft_audit.commands.terminal_options import prints_tables
from kraft_audit.text.exit_codes import EXIT_UNREADABLE
from kraft_audit.text.output import Format, Output, table_columns

KEYS: Final = (
    "key",
    "incident_id",
    "event",
    "n",
    "severity",
    "cluster",
    "cluster_id",
    "headline",
    "since",
    "until",
    "effects",
    "next",
    "link",
    "target",
    "stage",
    "why",
)
COLUMNS: Final = table_columns(
    "severity cluster event since target stage headline next why",
    wide="headline next why",
    dropped="stage since target",
)


@prints_tables
def notify(
    lake: LakePath,
    config: Annotated[
        Path,
        typer.Option(
            "--config",
            metavar="FILE",
            show_default=False,
            help="Targets and routes, in the format of conf/notify.yaml.",
        ),
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be sent, but send and record nothing.")
    ] = False,
    output: OutputFormat = Format.TABLE,
) -> int:
    """Send a message for each incident that opened, got worse, came back or was resolved since the last call.

    Call `notify` after each run. A message says when the incident began, what it did to partitions and which command to
    run next. It links to the incident's page if the config sets report_url. Each message is sent at least once, under a
    key that never changes: (incident, event, n).

    An incident is resolved when two consecutive runs have read its cluster and did not find it. If it comes back within
    six hours, `notify` reports it as reopened. If it comes back later, it is a new incident. Exit code 3 if a target
    did not take a message; the next call tries again.

    \b
    Examples:
      kraft-audit notify .demo/lake --config conf/notify.yaml --dry-run
      kraft-audit notify s3://audit/kraft --config /etc/kraft-audit/notify.yaml
    """
    need_packages("notify", LAKE_PACKAGES, "lake")
    from kraft_audit.lake.delta import DeltaLake
    from kraft_audit.lake.lake_paths import absolute
    from kraft_audit.lake.notices.notifying import Notifier, summary_line, worst_first

    settings, targets = notices_of(config, with_secrets=not dry_run)
    uri = absolute(lake, Path.cwd())
    notifier = Notifier(DeltaLake(uri), settings, targets)
    sent = worst_first(notifier.notify(dry_run=dry_run))
    rows = [{name: each.row[name] for name in KEYS} for each in sent]
    out = Output(output)
    if out.format is Format.TABLE:
        out.line(summary_line(sent))
    out.rows(rows, COLUMNS, KEYS)
    return EXIT_UNREADABLE if any(each.stage == "failed" for each in sent) else 0
