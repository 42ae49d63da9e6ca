"""`check`: every rule over the clusters below PATH."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from kraft_audit.commands.arguments import JudgedLogs, rule_id, since_option
from kraft_audit.commands.completion import rule_ids
from kraft_audit.commands.ending import UsageError
from kraft_audit.commands.incident_rows import list_incidents
from kraft_audit.commands.results import Results
from kraft_audit.commands.terminal_options import prints_tables
from kraft_audit.rules.rule_model import Severity
from kraft_audit.text.exit_codes import EXIT_FINDINGS, EXIT_FINE, EXIT_UNDECIDED, EXIT_UNREADABLE
from kraft_audit.text.output import Format, Output, table_columns

if TYPE_CHECKING:
    from kraft_audit.cluster import Cluster
    from kraft_audit.incidents.folding import FoldedFindings
    from kraft_audit.rules.cluster_history import ClusterHistory
    from kraft_audit.rules.rule_model import Finding
    from kraft_audit.rules.rule_settings import WaiverCount

EXITS_IN_ORDER: Final = (EXIT_FINE, EXIT_UNDECIDED, EXIT_UNREADABLE, EXIT_FINDINGS)
"""Of several clusters the last of these is the exit code."""
CLUSTERS_IN_FULL: Final = 8
"""Of more clusters there is a line each."""
CLUSTER_COLUMNS: Final = table_columns("cluster_id state open answer", {"cluster_id": "cluster"}, wide="answer")
ANSWER_WORD_WIDTH: Final = 12
"""Room for the word that a line of the answer begins with."""
COLORS: Final[Mapping[Severity, str]] = {
    Severity.CRITICAL: "1;31",
    Severity.HIGH: "31",
    Severity.MEDIUM: "33",
    Severity.LOW: "36",
}


CheckFormat = Literal["table", "json", "jsonl", "csv", "sarif", "ocsf"]
SarifProfile = Literal["full", "github"]
FailOn = Literal["low", "medium", "high", "critical", "never"]
FINDINGS_ONLY: Final = ("sarif", "ocsf")
"""The formats that have no incidents."""


@prints_tables
def check(
    logs: JudgedLogs,
    rule: Annotated[
        list[str] | None,
        typer.Option(
            "--rule",
            metavar="RULE",
            show_default=False,
            help="Apply only this rule, and list every partition or node that it concerns. Repeatable.",
            autocompletion=rule_ids,
        ),
    ] = None,
    show_all: Annotated[bool, typer.Option("--all", help="Also list rules that found nothing.")] = False,
    in_full: Annotated[
        bool, typer.Option("--full", help="List every partition or node that a finding concerns, with the evidence.")
    ] = False,
    by_finding: Annotated[bool, typer.Option("--findings", help="List findings rule by rule, not incidents.")] = False,
    by_incident: Annotated[
        bool, typer.Option("--incidents", help="List only incidents, one row each. Not for sarif or ocsf.")
    ] = False,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="TIME",
            show_default=False,
            help="For --fail-on, also count findings that were open after TIME.",
        ),
    ] = None,
    with_resolved: Annotated[
        bool, typer.Option("--include-resolved", help="Also list resolved incidents, and let them count for --fail-on.")
    ] = False,
    fail_on: Annotated[FailOn, typer.Option(help="Exit 1 if an open finding is at least this severe.")] = "high",
    profile: Annotated[
        SarifProfile,
        typer.Option(
            "--profile",
            help="With --output sarif: write all findings, or only those that GitHub code scanning accepts.",
        ),
    ] = "full",
    output: Annotated[
        CheckFormat,
        typer.Option(
            "--output",
            "-o",
            help="table is for people, the others are for programs. ocsf prints one JSON object per line.",
        ),
    ] = "table",
) -> int:
    """Say what was unsafe, when, why, and what to do.

    `check` applies every rule to every capture below PATH. The first lines say whether the quorum works, what is lost
    or at risk now, and what to do next. Incidents follow, open ones first. --findings, --rule, --full and --all list
    findings rule by rule instead. If PATH holds more than 8 clusters, each cluster gets one line, the worst first.
    --cluster then shows one of them.

    An incident groups the findings that have the same cause, for example a broker stop, a lost broker, an epoch without
    a leader, or a stopped quorum. --incidents lists only incidents. Its JSON also holds their events, their effects on
    partitions, and the ids of their findings.

    Exit code 1 if an open finding that is not waived is at least as severe as --fail-on. Exit code 1 also if the quorum
    is stalled, has no leader or has lost its majority, or if the captured disks leave that undecided. Otherwise exit
    code 3 if nothing of a cluster's log could be read, and 4 if the quorum could not be judged because no majority of
    its voters was captured. With `--fail-on never` the exit code is 0 in all these cases.

    \b
    Examples:
      kraft-audit check samples/elr-06-kill-13-last-replica.tgz
      kraft-audit check samples/divergence.tgz --output json --fail-on never
      kraft-audit check --incidents samples/elr-29-stopped.tgz --fail-on never
    """
    from kraft_audit.findings.situation import alarming, cluster_row
    from kraft_audit.findings.situation import exit_code as exit_code_of
    from kraft_audit.incidents.folding import counted_findings
    from kraft_audit.incidents.incident import INCIDENT_KEYS
    from kraft_audit.rules.columns.needed_software import software_needed

    judge = logs.judge([rule_id(text) for text in rule] if rule else None)
    since_ms = None if since is None else since_option(since)
    by_rule = by_finding or in_full or show_all or bool(rule)
    if by_incident and (by_rule or output in FINDINGS_ONLY):
        raise UsageError("--incidents lists no findings: leave out --findings, --rule, --full, --all, sarif and ocsf")
    results = Results(Format({"sarif": "json", "ocsf": "jsonl"}.get(output, output)), INCIDENT_KEYS)
    findings: list[Finding] = []
    needed: dict[str, str | None] = {}
    lines = []
    exit_code = 0
    for cluster in results.each_history(logs):
        unfolded, waivers = judge(cluster)
        folded = cluster.incidents(unfolded)
        judged = list(folded.findings)
        findings += judged
        needed |= dict.fromkeys((finding.finding_id for finding in judged), software_needed(cluster.history))
        if by_incident:
            list_incidents(results, cluster, folded)
        elif output == "ocsf":
            _print_events(results.out, judged, cluster.history, show_all)
        elif not results.is_table:
            pass
        elif by_rule:
            _print_findings(results.out, cluster, judged, waivers, logs.path, show_all, in_full, is_whole=not rule)
        elif results.cluster_count > CLUSTERS_IN_FULL:
            results.is_spaced = False
            lines.append(cluster_row(cluster.title, cluster.situation(folded)))
        else:
            _print_answer(results.out, cluster, folded, logs.path, with_resolved=with_resolved)
        counted = counted_findings(folded, since_ms, with_resolved=with_resolved)
        if fail_on != "never":
            standing = cluster.standing()
            code = exit_code_of(cluster.history, standing, alarming(standing, counted), Severity(fail_on))
            exit_code = max(exit_code, code, key=EXITS_IN_ORDER.index)
    if lines:
        results.out.rows(sorted(lines, key=lambda line: line["rank"], reverse=True), CLUSTER_COLUMNS)
        results.text("--cluster ID shows one of them in full")
    if by_incident:
        results.end()
    else:
        _export(results.out, output, findings, needed, show_all, profile)
    return exit_code


def _print_answer(out: Output, cluster: Cluster, folded: FoldedFindings, path: str, *, with_resolved: bool) -> None:
    from kraft_audit.findings.answer import answer_lines

    for line in answer_lines(cluster.history, folded, path, all_resolved=with_resolved):
        if line.is_header or not line.text:
            out.text(line.text, hanging=ANSWER_WORD_WIDTH)
            continue
        text = f"{line.word:<{ANSWER_WORD_WIDTH}}{line.text}"
        hanging = ANSWER_WORD_WIDTH if line.word else None
        if line.severity is None:
            out.text(text, hanging)
        else:
            out.colored(line.word, COLORS[line.severity], text[len(line.word) :], hanging)
    out.stream.flush()


def _print_findings(
    out: Output,
    cluster: Cluster,
    findings: list[Finding],
    waivers: WaiverCount | None,
    path: str,
    show_all: bool,
    in_full: bool,
    *,
    is_whole: bool,
) -> None:
    from kraft_audit.findings.check_text import DETAIL_INDENT, check_lines

    lines = check_lines(
        cluster.history,
        findings,
        path=path,
        show_all=show_all,
        in_full=in_full or not is_whole,
        is_whole=is_whole,
        waivers=waivers,
    )
    for line in lines:
        hanging = None if line.text.startswith(" ") else len(DETAIL_INDENT)
        if line.severity is None:
            out.text(line.text, hanging)
        else:
            word, space, rest = line.text.partition(" ")
            out.colored(word, COLORS[line.severity], space + rest, hanging)
    out.stream.flush()


def _print_events(out: Output, findings: list[Finding], history: ClusterHistory, show_all: bool) -> None:
    """OCSF events of one cluster, one a line."""
    from importlib.metadata import version

    from kraft_audit.findings.finding_formats import finding_rows, selected
    from kraft_audit.findings.ocsf import observed_ms, ocsf_events, without_nulls

    rows = finding_rows(selected(findings, show_all=show_all), seen_ms=observed_ms(history))
    out.rows(map(without_nulls, ocsf_events(rows, version("kraft-audit"))), [])


def _export(
    out: Output,
    output: CheckFormat,
    findings: list[Finding],
    needed: dict[str, str | None],
    show_all: bool,
    profile: SarifProfile,
) -> None:
    from kraft_audit.findings import finding_formats

    if output == "sarif":
        from importlib.metadata import version

        from kraft_audit.findings.sarif import Profile, sarif

        out.document(sarif(findings, version=version("kraft-audit"), profile=Profile(profile)))
    elif output == "csv":
        out.rows(finding_formats.csv_rows(findings, show_all=show_all), [], finding_formats.CSV_KEYS)
    elif output not in ("table", "ocsf"):
        document = finding_formats.check_document(findings, show_all=show_all)
        out.rows(finding_formats.with_needed_software(document, needed), [])
