"""`check`: every rule over the clusters below PATH."""

from __future__ import annotations

import enum
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kraft_audit.commands.arguments import Capture, Defaults, DialectOption, Path
from kraft_audit.commands.ending import EXIT_FINDINGS, EXIT_UNREADABLE, UsageError
from kraft_audit.commands.histories import histories
from kraft_audit.commands.judging import SettingsFile, WaiversFile, thresholds_of, waivers_of
from kraft_audit.output import Format, Output
from kraft_audit.rules.model import Severity
from kraft_codec.schemas import Dialect

if TYPE_CHECKING:
    from kraft_audit.rules.history import ClusterHistory
    from kraft_audit.rules.model import Finding, Thresholds, Waiver
    from kraft_audit.rules.waivers import WaiverCount

WHY_INDENT: Final = 10
COLORS: Final[Mapping[Severity, str]] = {
    Severity.CRITICAL: "1;31",
    Severity.HIGH: "31",
    Severity.MEDIUM: "33",
    Severity.LOW: "36",
}


class CheckFormat(enum.StrEnum):
    """What findings can be printed as."""

    TABLE = Format.TABLE.value
    JSON = Format.JSON.value
    JSONL = Format.JSONL.value
    CSV = Format.CSV.value
    SARIF = "sarif"


class FailOn(enum.StrEnum):
    """From which severity on the exit code is 1."""

    LOW = Severity.LOW.value
    MEDIUM = Severity.MEDIUM.value
    HIGH = Severity.HIGH.value
    CRITICAL = Severity.CRITICAL.value
    NEVER = "never"


def check(
    path: Path,
    rule: Annotated[
        list[str] | None,
        typer.Option("--rule", metavar="RULE", show_default=False, help="Only this rule, with every subject."),
    ] = None,
    show_all: Annotated[bool, typer.Option("--all", help="What is clear, too.")] = False,
    in_full: Annotated[bool, typer.Option("--full", help="Every subject with its evidence.")] = False,
    fail_on: Annotated[FailOn, typer.Option(help="From which severity on the exit code is 1.")] = FailOn.HIGH,
    output: Annotated[CheckFormat, typer.Option("--output", "-o", help="Table for people.")] = CheckFormat.TABLE,
    settings: SettingsFile = None,
    waivers: WaiversFile = None,
    capture: Capture = None,
    default: Defaults = None,
    dialect: DialectOption = Dialect.KIP853,
) -> int:
    """Say what was unsafe, when, why, and what to do: all rules over all captures below PATH.

    Exit code 1 where something is raised at or above --fail-on and not waived; else 3 where nothing could be read of a
    cluster's log, so that no rule is decided.

    \b
    Examples:
      kraft-audit check samples/elr-06-kill-13-last-replica.tgz
      kraft-audit check samples/divergence --output json --fail-on never
    """
    thresholds, known_waivers = thresholds_of(settings), waivers_of(waivers)
    only = None if not rule else [_rule_id(text) for text in rule]
    out = Output(Format.TABLE if output is CheckFormat.SARIF else Format(output.value))
    findings: list[Finding] = []
    is_read = True
    for number, history in enumerate(histories(path, dialect=dialect, capture=capture, defaults=default)):
        theirs, count = _judged(history, thresholds, only, known_waivers)
        findings += theirs
        is_read = is_read and history.is_read
        if output is CheckFormat.TABLE:
            if number:
                out.line("")
            _print(out, history, theirs, count, path=path, show_all=show_all, in_full=in_full or bool(rule))
            out.stream.flush()
    _export(out, output, findings, show_all)
    return _exit_code(findings, fail_on) or (0 if is_read else EXIT_UNREADABLE)


def _judged(
    history: ClusterHistory, thresholds: dict[str, Thresholds], only: list[str] | None, waivers: tuple[Waiver, ...]
) -> tuple[list[Finding], WaiverCount | None]:
    from kraft_audit.rules import registry
    from kraft_audit.rules.waivers import apply_waivers

    found = list(registry.check(history, thresholds, only=only))
    if not waivers:
        return found, None
    return apply_waivers(found, waivers, time.time_ns() // 1_000_000)


def _print(
    out: Output,
    history: ClusterHistory,
    findings: list[Finding],
    count: WaiverCount | None,
    *,
    path: str,
    show_all: bool,
    in_full: bool,
) -> None:
    from kraft_audit.rules.render import check_lines

    for line in check_lines(history, findings, path=path, show_all=show_all, in_full=in_full, waivers=count):
        if line.severity is None:
            out.text(line.text, hanging=_hanging(line.text))
        else:
            word, space, rest = line.text.partition(" ")
            out.colored(word, COLORS[line.severity], space + rest)


def _hanging(text: str) -> int:
    """Under its first word; what stands behind `why` and `do`, under that."""
    return WHY_INDENT if text.startswith(("    why ", "    do ")) else len(text) - len(text.lstrip()) + 2


def _export(out: Output, output: CheckFormat, findings: list[Finding], show_all: bool) -> None:
    from kraft_audit.rules import exports

    if output is CheckFormat.SARIF:
        from importlib.metadata import version

        out.document(exports.sarif(findings, version=version("kraft-audit")))
    elif output is CheckFormat.CSV:
        out.rows(exports.csv_rows(findings, show_all=show_all), [], exports.CSV_KEYS)
    elif output is not CheckFormat.TABLE:
        out.rows(exports.check_document(findings, show_all=show_all), [])


def _exit_code(findings: list[Finding], fail_on: FailOn) -> int:
    from kraft_audit.rules.exports import worst

    found = worst(findings)
    if found is None or fail_on is FailOn.NEVER:
        return 0
    return EXIT_FINDINGS if found.rank >= Severity(fail_on.value).rank else 0


def _rule_id(text: str) -> str:
    from kraft_audit.rules import pages, registry

    found = registry.find_rule(text)
    if found is None:
        near = pages.near(text)
        raise UsageError(f"no rule {text!r}{f', perhaps {near}' if near else ''}: `kraft-audit rules` lists them")
    return found.id
