"""`upgrade-check`: whether the features may go to the level of a release, who blocks it, and the way out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kraft_audit.commands.arguments import Logs, OutputFormat
from kraft_audit.commands.completion import releases
from kraft_audit.commands.ending import UsageError
from kraft_audit.commands.results import Results
from kraft_audit.commands.terminal_options import prints_tables
from kraft_audit.commands.verdicts import Verdicts, decision_lines, print_lines
from kraft_audit.text.output import Format, Output, OutputRow, table_columns
from kraft_audit.text.readable import when

if TYPE_CHECKING:
    from kraft_audit.recovery.feature_levels import FeatureCheck
    from kraft_audit.recovery.upgrade_check import UpgradeCheck

KEYS: Final = ("cluster_id", "to", "release_level", "verdict", "reason", "next_steps", "features")
FEATURE_COLUMNS: Final = table_columns("feature finalized release new verdict drops", wide="drops", dropped="release")
BLOCKER_COLUMNS: Final = table_columns("blocked node supports since offset standing", dropped="offset since")


@prints_tables
def upgrade_check(
    logs: Logs,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="RELEASE",
            show_default=False,
            help="Release, for example 4.4, or metadata.version, for example 4.4-IV2.",
            autocompletion=releases,
        ),
    ],
    output: OutputFormat = Format.TABLE,
) -> int:
    """Say whether a cluster may move to the feature levels of a release, which nodes block it, and what to do.

    Kafka checks the registration of every broker and controller. That includes fenced brokers, and controllers that no
    longer exist. Exit code 0 if the move is allowed, 1 if it is blocked, 4 if it is undecided.

    \b
    Examples:
      kraft-audit upgrade-check samples/dynamic-quorum.tgz --to 4.4
      kraft-audit upgrade-check samples/mini-4.4.0.tgz --to 4.2 --output json
    """
    from kraft_codec.schemas.releases import metadata_version_of

    try:
        level = metadata_version_of(to)
    except ValueError as problem:
        raise UsageError(f"--to: {problem}") from None
    results = Results(output, KEYS)
    verdicts = Verdicts(results)
    for cluster in results.each_history(logs):
        answer = cluster.upgrade_check(level)
        verdicts.add(answer.verdict, {"cluster_id": cluster.cluster_id, "to": to, **asdict(answer)})
        if results.is_table:
            results.title(cluster)
            _print(results.out, answer)
    return verdicts.end()


def _print(out: Output, answer: UpgradeCheck) -> None:
    print_lines(out, decision_lines(answer.verdict, answer))
    out.line("")
    out.rows(map(_feature_row, answer.features), FEATURE_COLUMNS)
    blockers = list(_blocker_rows(answer.features))
    if blockers:
        out.line("")
        out.rows(blockers, BLOCKER_COLUMNS)


def _feature_row(feature: FeatureCheck) -> OutputRow:
    from kraft_audit.recovery.feature_levels import level_text

    levels = (feature.finalized_level, feature.release_level, feature.new_level)
    shown = ("" if level is None else level_text(feature.name, level) for level in levels)
    row = dict(zip(("finalized", "release", "new"), shown, strict=True))
    verdict = feature.verdict.value if feature.is_changed else "stays"
    return {"feature": feature.name, **row, "verdict": verdict, "drops": ", ".join(feature.drops)}


def _blocker_rows(features: Sequence[FeatureCheck]) -> Iterator[OutputRow]:
    for feature in features:
        for blocker in feature.blockers:
            supports = None if blocker.lowest_level is None else f"{blocker.lowest_level} to {blocker.highest_level}"
            since = None if blocker.since_ms is None else when(blocker.since_ms)
            yield {
                "blocked": feature.name,
                "node": blocker.name,
                "supports": supports,
                "since": since,
                "offset": blocker.since_offset,
                "standing": f"{blocker.standing}: perhaps gone" if blocker.is_ghost else blocker.standing.value,
            }
