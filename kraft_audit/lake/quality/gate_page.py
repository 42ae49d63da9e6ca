"""The results of the quality gate as one page: a file that needs no server, no script and no network."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from markupsafe import Markup

from kraft_audit.lake.quality.promises import Promise
from kraft_audit.text.output import neutral
from kraft_audit.text.readable import plural, when

CLUSTERS_SHOWN: Final = 20
ROWS_SHOWN: Final = 10
PAGE_FILE: Final = "index.html"
ROW_CHARACTERS_MAX: Final = 600
_PAGE: Final = Markup("""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>Quality gate of plan {plan}</title>
<style>
:root {{ color-scheme: light dark; --line: #8884; --bad: #b3173f; --good: #23693f; }}
@media (prefers-color-scheme: dark) {{ :root {{ --bad: #ff8ba4; --good: #86cf9f; }} }}
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 0 auto; padding: 1.5rem; }}
.scroll {{ overflow-x: auto; }}
table {{ border-collapse: collapse; width: 100%; margin-bottom: 2rem; }}
th, td {{ text-align: left; vertical-align: top; padding: .4rem .8rem .4rem 0; border-bottom: 1px solid var(--line); }}
td:nth-child(-n+2) {{ white-space: nowrap; }} code {{ overflow-wrap: anywhere; }}
.critical, .warning {{ color: var(--bad); font-weight: 600; }} .ok {{ color: var(--good); }}
code {{ font-size: .85rem; }}
</style></head><body>
<h1>Quality gate: {answer}</h1>
<p>{held} of {promises} hold. Plan {plan} of <code>{lake}</code>, checked at {at} UTC.</p>
{broken}{kept}
</body></html>
""")
_TABLE: Final = Markup(
    "<h2>{title}</h2>\n<div class=scroll tabindex=0><table><thead><tr>{heads}</tr></thead><tbody>\n"
    "{rows}</tbody></table></div>\n"
)


@dataclass(frozen=True, slots=True)
class PromiseVerdict:
    """How the expectations of one promise ended; `clusters` are those that break it, at most CLUSTERS_SHOWN.

    `worst` is the number of rows that break it in the worst cluster, or the worst cluster's value of a fleet's promise.
    `rows` are some of the rows that break it.
    """

    table: str
    clause: str
    severity: str
    promise: str
    passed: bool
    worst: float
    cluster_count: int
    clusters: tuple[str, ...]
    rows: tuple[Mapping[str, Any], ...] = ()


BrokenRows = tuple[Mapping[str, float], Sequence[Mapping[str, Any]]]
"""How many rows break a promise, by cluster (or a cluster's value of a fleet's promise), and some of these rows."""


def verdict(table: str, promise: Promise, broken: Sequence[BrokenRows], of_columns: str = "") -> PromiseVerdict:
    """The verdict on the promises of one clause, of which these are broken."""
    worst: dict[str, float] = {}
    for by_cluster, _ in broken:
        for cluster, count in by_cluster.items():
            worst[cluster] = max(worst.get(cluster, 0.0), count)
    clusters = sorted(worst, key=lambda cluster: (-worst[cluster], cluster))
    return PromiseVerdict(
        table,
        promise.clause,
        promise.severity,
        promise.text + of_columns,
        not broken,
        max(worst.values(), default=0.0),
        len(clusters),
        tuple(clusters[:CLUSTERS_SHOWN]),
        tuple([row for _, rows in broken for row in rows][:ROWS_SHOWN]),
    )


def kept(table: str, promises: Iterable[Promise]) -> Iterator[PromiseVerdict]:
    """A verdict for each clause of promises that all hold."""
    for promise in {promise.clause: promise for promise in promises}.values():
        yield verdict(table, promise, [])


def gate_page(verdicts: Sequence[PromiseVerdict], is_open: bool, lake: str, plan: int, now_ms: int) -> str:
    """The page: the promises that are broken with some of the rows that break them, then those that hold."""
    broken = sorted((each for each in verdicts if not each.passed), key=lambda each: each.severity != "critical")
    kept = [each for each in verdicts if each.passed]
    answer = "open" if is_open else "closed. Publish nothing from this lake before it is repaired"
    return _PAGE.format(
        plan=plan,
        answer=answer,
        held=len(kept),
        promises=plural(len(verdicts), "promise"),
        lake=neutral(lake),
        at=when(now_ms),
        broken=_table(
            "Broken",
            ("Severity", "Table", "Promise", "Clusters", "Worst cluster", "Some of the rows"),
            map(_broken_cells, broken),
        ),
        kept=_table("Kept", ("", "Table", "Promise"), map(_first_cells, kept)),
    )


def _first_cells(verdict: PromiseVerdict) -> list[Markup]:
    status = "ok" if verdict.passed else verdict.severity
    return [
        Markup("<span class={}>{}</span>").format(status, status),
        Markup("{}").format(verdict.table),
        Markup("{} <code>{}</code>").format(neutral(verdict.promise), verdict.clause),
    ]


def _broken_cells(verdict: PromiseVerdict) -> list[Markup]:
    more = verdict.cluster_count - len(verdict.clusters)
    clusters = ", ".join([*map(neutral, verdict.clusters), *([f"{more} more"] if more else [])])
    rows = (Markup("<code>{}</code>").format(_row_text(row)) for row in verdict.rows)
    return [
        *_first_cells(verdict),
        *map(Markup("{}").format, (clusters, f"{verdict.worst:g}")),
        Markup("<br>").join(rows),
    ]


def _row_text(row: Mapping[str, Any]) -> str:
    text = neutral(", ".join(f"{name}={value}" for name, value in row.items() if value is not None))
    return text if len(text) <= ROW_CHARACTERS_MAX else f"{text[:ROW_CHARACTERS_MAX]}…"


def _table(title: str, heads: Sequence[str], rows: Iterable[Sequence[Markup]]) -> Markup:
    """A table under its heading; nothing where it has no row."""
    cells = Markup("").join(
        Markup("<tr>{}</tr>\n").format(Markup("").join(map(Markup("<td>{}</td>").format, row))) for row in rows
    )
    titles = Markup("").join(map(Markup("<th scope=col>{}</th>").format, heads))
    return _TABLE.format(title=title, heads=titles, rows=cells) if cells else Markup("")
