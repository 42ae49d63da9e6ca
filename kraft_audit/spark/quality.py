"""The quality gate: Great Expectations over what the table contracts promise, with its Data Docs kept beside the run.

A suite per table is made from its contract; each expectation looks at one count per cluster. A critical one that fails
stops the run before findings are published; a warning is shown and lets it go on.
"""

from __future__ import annotations

import html
import logging
import os
import re
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow.fs as pafs

from kraft_audit.output import neutral
from kraft_audit.settings import is_uri
from kraft_audit.spark.data_files import table_folder
from kraft_audit.spark.gold_tables import GOLD
from kraft_audit.spark.lake import Lake, require_lake
from kraft_audit.spark.ledger import Ledger
from kraft_audit.spark.quality_clauses import Clause, fleet_clauses, table_clauses
from kraft_audit.spark.quality_gold import gold_clauses
from kraft_audit.spark.quality_memory import QUALITY_FOLDER, last_looks, remember, row_counts
from kraft_audit.spark.tables import LAKE_TABLES
from kraft_codec.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

FLEET_SUITE: Final = "fleet"
FRESH_HOURS: Final = 26.0
CLUSTERS_SHOWN: Final = 20
# Data Docs name stylesheets and scripts of other hosts: a page of ours asks nobody, and reads well without them.
CONTENT_POLICY: Final = (
    '<meta http-equiv="Content-Security-Policy" '
    "content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">"
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """How one expectation ended; `clusters` are those that break it, at most CLUSTERS_SHOWN of `cluster_count`."""

    table: str
    clause: str
    severity: str
    promise: str
    passed: bool
    worst: float
    cluster_count: int
    clusters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GateResult:
    """What the gate found after plan `plan`; `docs` is where the Data Docs lie, empty where none were asked for."""

    plan: int
    verdicts: tuple[Verdict, ...]
    docs: str

    @property
    def is_open(self) -> bool:
        """Whether findings may be published."""
        return not any(one.severity == "critical" and not one.passed for one in self.verdicts)


def judge_lake(
    lake: Lake,
    *,
    fresh_hours: float = FRESH_HOURS,
    only_new: bool = False,
    docs: str | None = None,
    now_ms: int | None = None,
) -> GateResult:
    """Judge every table of the lake, as of its newest closed plan. Raises InputError where there is no lake.

    `only_new`: what plans brought since a look of this kind last found every critical promise held, and all that the
    lake holds where none did within a day; what was found is kept in the lake for the next look.
    `docs` is a folder for the Data Docs; None puts them into the lake's own `_quality/plan-…`, empty writes none.
    """
    require_lake(lake)
    closed = Ledger(lake).status().closed
    if closed == 0:
        raise InputError(lake.uri, "no plan is closed yet: `kraft-audit run` first")
    now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    looks = last_looks(lake) if only_new else None
    first = 1 if looks is None else looks.first_new_plan(lake, closed, now)
    counts = {} if looks is None else row_counts(lake, closed)
    suites = {
        table.name: clauses
        for table in LAKE_TABLES.values()
        if lake.exists(table.name) and (clauses := table_clauses(lake, table, closed, first))
    }
    for table in GOLD.values():
        if lake.exists(table.name):
            suites[table.name] = gold_clauses(lake, table, closed, now, fresh_hours)
    suites[FLEET_SUITE] = fleet_clauses(lake, closed, now, fresh_hours)
    with tempfile.TemporaryDirectory(prefix="kraft-audit-quality-") as folder:
        verdicts = validate(suites, Path(folder))
        where = ""
        if docs != "":
            where = f"{lake.uri}/{QUALITY_FOLDER}/plan-{closed:08d}" if docs is None else docs
            _keep(Path(folder), where)
    result = GateResult(closed, tuple(verdicts), where)
    if looks is not None:
        remember(lake, looks.after(first, closed, now, counts, is_open=result.is_open))
    return result


def validate(suites: dict[str, list[Clause]], docs: Path) -> list[Verdict]:
    """Run one Great Expectations suite a table and write the Data Docs below `docs`."""
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    logging.getLogger("great_expectations").setLevel(logging.ERROR)
    import great_expectations as gx
    from great_expectations.data_context.types.base import ProgressBarsConfig

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False, metric_calculations=False)
    for site in list(context.list_data_docs_sites()):
        context.delete_data_docs_site(site)
    store = {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(docs)}
    index = {"class_name": "DefaultSiteIndexBuilder"}
    config = {"class_name": "SiteBuilder", "store_backend": store, "site_index_builder": index}
    context.add_data_docs_site("run", config)
    source = context.data_sources.add_pandas("lake")
    verdicts: list[Verdict] = []
    for name, clauses in suites.items():
        asset = source.add_dataframe_asset(name)
        verdicts += _validate_one(context, name, clauses, asset.add_batch_definition_whole_dataframe("clusters"))
    context.build_data_docs(site_names=["run"])
    for page in docs.rglob("*.html"):
        page.write_text(re.sub(r"<head>", f"<head>{CONTENT_POLICY}", page.read_text("utf-8"), count=1), "utf-8")
    return verdicts


def _validate_one(context: Any, name: str, clauses: Sequence[Clause], batch: Any) -> list[Verdict]:
    import great_expectations as gx
    from great_expectations.expectations import ExpectColumnValuesToBeBetween

    suite = context.suites.add(gx.ExpectationSuite(name=name))
    for clause in clauses:
        suite.add_expectation(
            ExpectColumnValuesToBeBetween(
                column=clause.name, min_value=0, max_value=clause.limit, severity=clause.severity, notes=clause.promise
            )
        )
    definition = context.validation_definitions.add(gx.ValidationDefinition(name=name, data=batch, suite=suite))
    shown = {"result_format": "COMPLETE", "unexpected_index_column_names": ["cluster_id"]}
    result = definition.run(batch_parameters={"dataframe": frame_of(clauses)}, result_format=shown)
    passed = {one.expectation_config.kwargs["column"]: bool(one.success) for one in result.results}
    return [_verdict(name, clause, passed[clause.name]) for clause in clauses]


def frame_of(clauses: Iterable[Clause]) -> pd.DataFrame:
    """A row a cluster (and one without a name for what is no cluster's), a column a clause."""
    import pandas as pd

    clusters = sorted({cluster for clause in clauses for cluster in clause.counts}) or [""]
    columns = {clause.name: [clause.counts.get(cluster, 0.0) for cluster in clusters] for clause in clauses}
    return pd.DataFrame({"cluster_id": [_harmless(cluster) for cluster in clusters], **columns})


def _harmless(text: str) -> str:
    """Great Expectations writes values into its pages as they are, and takes $ for a variable of its own."""
    return html.escape(neutral(text)).replace("$", "&#36;")


def _verdict(table: str, clause: Clause, passed: bool) -> Verdict:
    broken = sorted((-count, cluster) for cluster, count in clause.counts.items() if not 0 <= count <= clause.limit)
    worst = max(clause.counts.values(), default=0.0)
    clusters = tuple(cluster for _, cluster in broken[:CLUSTERS_SHOWN])
    return Verdict(table, clause.name, clause.severity, clause.promise, passed, worst, len(broken), clusters)


def _keep(pages: Path, where: str) -> None:
    """Copy the pages to a folder here or in the lake's object store."""
    if not is_uri(where):
        Path(where).mkdir(parents=True, exist_ok=True)
        pafs.copy_files(
            str(pages), where, source_filesystem=pafs.LocalFileSystem(), destination_filesystem=pafs.LocalFileSystem()
        )
        return
    parent, _, name = where.rstrip("/").rpartition("/")
    target = table_folder(parent, name)
    for page in sorted(pages.rglob("*")):
        if page.is_file():
            with target.open_output_stream(page.relative_to(pages).as_posix()) as sink:
                sink.write(page.read_bytes())
