"""Writes the pages: static files that need no server and no network.

Every text of a log, a lake or a waiver reaches a page through one function, `shown`, which every expression of every
template passes. It makes control characters and bidirectional marks visible, then escapes. The pages allow their own
style sheet and script, by hash, and nothing else: they make no request and run no other script.
"""

from __future__ import annotations

import base64
import filecmp
import hashlib
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from kraft_audit.findings.rule_pages import rule_rows
from kraft_audit.findings.situation import said_and_command
from kraft_audit.picture import drawing
from kraft_audit.report.auditor_page import CSV_FILE as CONTROLS_FILE
from kraft_audit.report.auditor_page import Audit, control_page, write_controls
from kraft_audit.report.cluster_page import (
    SUBJECTS_SHOWN,
    SUMMARY_INCIDENTS_SHOWN,
    ClusterView,
    cluster_view,
    epoch_plot,
    interval_plot,
    voter_plot,
)
from kraft_audit.report.cluster_standing import advice_of, since_of, standing_of, state_in_words
from kraft_audit.report.earlier_pages import PAGES_FILE, EarlierPages, file_hash, write_pages
from kraft_audit.report.fleet_page import AGE_MAX_MS, ClusterLine, Fleet, fleet_view, known_incidents
from kraft_audit.report.oscal import OSCAL_FOLDER, oscal_documents, write_document
from kraft_audit.report.partition_exposure import partition_minutes
from kraft_audit.report.report_files import AddCluster, FileWriter, created_folders, csv_file, openmetrics_file, writing
from kraft_audit.report.report_source import AsOf, ClusterInput, ReportSource
from kraft_audit.report.since_last import INCIDENTS_FILE, SHOWN_MAX, since_last, write_incidents
from kraft_audit.rules.cluster_history import TableRow
from kraft_audit.rules.registry import rules
from kraft_audit.text.output import neutral
from kraft_audit.text.page_names import incident_anchor, page_of
from kraft_audit.text.readable import duration, is_time, plural, shown_cluster_id, when
from kraft_audit.text.watched_work import doing
from kraft_codec.errors import ChoiceError

MARK: Final = ".kraft-audit-report"
"""A file of this name says that we may write over the folder."""
UNFINISHED: Final = ".unfinished-"
TEXT_CHARACTERS_MAX: Final = 4000
"""A longer text is cut on a page; findings.csv has all of it."""


@dataclass(frozen=True, slots=True)
class WrittenReport:
    """The size of a written report, and how many of its clusters could not be read."""

    index: Path
    clusters: int
    open_findings: int
    files: int
    size_bytes: int
    not_read: int = 0


def shown(value: Any) -> Any:
    """Any value as escaped text, in which nothing can act; only markup of our own templates passes unchanged."""
    if isinstance(value, Markup):
        return value
    if value is None:
        raise TypeError("a template must say what is not known")
    text = str(value)
    if len(text) > TEXT_CHARACTERS_MAX:
        text = f"{text[:TEXT_CHARACTERS_MAX]}… ({len(text)} characters)"
    return Markup.escape(neutral(text))


def time_of(value: int | None) -> str:
    """A time in UTC, or "not known"."""
    if value is None:
        return "not known"
    return f"{when(value)} UTC" if value and is_time(value) else f"{value} ms"


def age(length_ms: int) -> str:
    """How long ago something was, in its largest unit."""
    return f"{' '.join(duration(length_ms).split()[:2])} ago"


def nodes(ids: Sequence[int] | None) -> str:
    return "not known" if ids is None else f"[{' '.join(map(str, ids))}]"


def _anchor(finding: TableRow) -> str:
    """Where an episode of a finding stands on its page."""
    began = finding["from_ms"] if finding["from_offset"] is None else finding["from_offset"]
    return f"f-{finding['finding_id']}-{began or 0}"


@cache
def _style() -> str:
    """The style sheet of every page, that of pictures included."""
    return _asset("site.css") + drawing.style()


@cache
def _asset(name: str) -> str:
    return files("kraft_audit.report").joinpath("assets", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def policy() -> str:
    """The content security policy of every page."""
    return (
        f"default-src 'none'; style-src '{_hash(_style())}'; script-src '{_hash(_asset('site.js'))}'; "
        "img-src data:; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"
    )


@cache
def environment() -> Environment:
    """The templates, with escaping; a missing name is an error."""
    templates = Environment(
        loader=PackageLoader("kraft_audit.report"),
        autoescape=True,
        finalize=shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters.update(
        time=time_of,
        length=duration,
        age=age,
        nodes=nodes,
        known=lambda value: "not known" if value is None else value,
        counted="{:,}".format,
        cluster=shown_cluster_id,
        anchor=_anchor,
        incident_anchor=incident_anchor,
        command=said_and_command,
        partition_minutes=partition_minutes,
    )
    templates.globals.update(
        plural=plural,
        page_of=page_of,
        policy=policy(),
        # our own files, no text from outside
        style=Markup(_style()),  # noqa: S704
        script=Markup(_asset("site.js")),  # noqa: S704
    )
    return templates


def write_site(source: ReportSource, folder: Path) -> WrittenReport:
    """Write the site into a folder that is new, empty, or an earlier report. Raises InputError.

    The site is written completely before its files are moved into place: if that fails, the folder stays as it was.
    """
    with _claimed(folder) as unfinished:
        as_of = source.as_of()
        site = _Site(unfinished, as_of, EarlierPages.of(folder, as_of))
        lines = _write_pages(source, site, folder)
        (unfinished / MARK).write_text("made by kraft-audit report, which writes over this folder\n")
        site.add_list()
        sizes = [file.stat().st_size for file in (*site.written, *(folder / name for name in site.kept))]
        _put_in_place(site, folder)
    opened = sum(sum(line.open_counts.values()) for line in lines)
    not_read = len(site.as_of.not_read)
    return WrittenReport(folder / "index.html", len(lines), opened, len(sizes), sum(sizes), not_read)


def _write_pages(source: ReportSource, site: _Site, folder: Path) -> list[ClusterLine]:
    fleet, audit = Fleet(), Audit()
    with (
        site.file("findings.csv", csv_file) as add_findings,
        site.file("metrics.prom", openmetrics_file) as add_metrics,
    ):
        for given in source.clusters(site.has_page):
            is_kept = site.has_page(given)
            view = cluster_view(given, is_drawn=not is_kept)
            fleet.add(given, view)
            audit.add(view)
            add_findings(given)
            add_metrics(given)
            if not is_kept:
                _write_cluster(site, given, view)
    known = known_incidents(fleet.lines)
    since = since_last(folder, known, {line.cluster_id for line in fleet.lines if line.is_read})
    site.write("index.html", "fleet.html", since=since, since_shown=SHOWN_MAX, **fleet_view(fleet))
    site.add(INCIDENTS_FILE, lambda target: write_incidents(target, site.as_of.made_at_ms, known))
    for name, results in audit.results.items():
        site.write(f"controls/{name}.html", "control.html", **control_page(name, results))
    site.add(CONTROLS_FILE, lambda target: write_controls(target, audit))
    for file, document in oscal_documents(audit, site.as_of).items():
        site.add(f"{OSCAL_FOLDER}/{file}", partial(write_document, document))
    timeless = replace(site.as_of, plan=None, versions=())
    for row in rule_rows():
        where = fleet.rule_clusters.get(row["rule"], [])
        site.write(
            f"rules/{row['rule']}.html",
            "rule.html",
            timeless,
            rule=row,
            meanings={threshold.name: threshold.comment for threshold in rules()[row["rule"]].thresholds},
            control=row["control"].replace("_", " "),
            affected=rules()[row["rule"]].text.affected,
            counts=fleet.rule_counts.get(row["rule"], {}),
            where=sorted(where, key=lambda counted: (-counted[1], counted[0].cluster_id)),
        )
    clusters = {rule: len(counted) for rule, counted in fleet.rule_clusters.items()}
    site.write(
        "rules/index.html", "rules.html", timeless, rules=rule_rows(), counts=fleet.rule_counts, clusters=clusters
    )
    return fleet.lines


def _write_cluster(site: _Site, given: ClusterInput, view: ClusterView) -> None:
    """The page of a cluster, as of what a lake last did about it: so it is the same until the lake does something."""
    name, as_of = page_of(given.page_id), site.as_of
    if given.origin is not None:
        as_of = replace(as_of, made_at_ms=given.origin.at_ms, plan=given.origin.plan, versions=())
    site.write(
        name,
        "cluster.html",
        as_of,
        view=view,
        standing=standing_of(view),
        state=state_in_words(view),
        since_ms=since_of(view),
        advice=advice_of(view),
        age_max_ms=AGE_MAX_MS,
        interval=interval_plot(view),
        voters=voter_plot(view.voter_sets),
        epochs=epoch_plot(view.leader_epochs),
        pictures=_pictures(view),
        subjects_shown=SUBJECTS_SHOWN,
        incidents_shown=SUMMARY_INCIDENTS_SHOWN,
    )


def _pictures(view: ClusterView) -> list[Markup]:
    """What happened, drawn for each width: all of its text is escaped there."""
    if view.picture is None:
        return []
    return [Markup(drawing.draw(view.picture, width)) for width in drawing.WIDTHS]  # noqa: S704


@dataclass(slots=True)
class _Site:
    """The pages of an unfinished site: files written, and pages of the earlier report that stay."""

    folder: Path
    as_of: AsOf
    earlier: EarlierPages
    written: list[Path] = field(default_factory=list)
    kept: dict[str, str] = field(default_factory=dict)
    made_of: dict[str, str] = field(default_factory=dict)
    _asked: dict[str, bool] = field(default_factory=dict)

    def has_page(self, given: ClusterInput) -> bool:
        """Whether the earlier report's page of the cluster stays."""
        name = page_of(given.page_id)
        if name not in self._asked and (made_of := self.earlier.made_of_now(given)) is not None:
            self.made_of[name] = made_of
            self._asked[name] = self.earlier.has(name, made_of)
            if self._asked[name]:
                self.kept[name] = self.earlier.hashes[name]
        return self._asked.get(name, False)

    def write(self, name: str, template: str, as_of: AsOf | None = None, **values: Any) -> None:
        doing(f"writing {name}")
        up = "../" * name.count("/")
        text = environment().get_template(template).render(up=up, as_of=as_of or self.as_of, page=name, **values)
        self.add(name, lambda target: target.write_text(text, encoding="utf-8"))

    def add_list(self) -> None:
        """The list of all files, by which the next report knows those that can stay."""
        hashes = {file.relative_to(self.folder).as_posix(): file_hash(file) for file in self.written} | self.kept
        self.add(PAGES_FILE, lambda target: write_pages(target, hashes, self.made_of))

    def add(self, name: str, write: Callable[[Path], object]) -> None:
        """A file that `write` writes at once."""
        target = self.folder / name
        with writing(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            write(target)
        self.written.append(target)

    @contextmanager
    def file(self, name: str, writer: FileWriter) -> Iterator[AddCluster]:
        """A file of all clusters, which grows while their pages are written."""
        target = self.folder / name
        with writing(target), writer(target, self.as_of) as add:
            yield add
        self.written.append(target)


def _put_in_place(site: _Site, folder: Path) -> None:
    """Move every page that differs into place, each atomically, the mark first; then delete pages that are gone.

    Those are what stands for clusters, and of other files those that an earlier report wrote and nobody changed.
    """
    with writing(folder):
        placed = {folder / file.relative_to(site.folder): file for file in (site.folder / MARK, *site.written)}
        there = {*placed, *(folder / name for name in site.kept)}
        for target, file in placed.items():
            if target.is_file() and not target.is_symlink() and filecmp.cmp(file, target, shallow=False):
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            file.chmod(0o644)
            file.replace(target)
        names = {file.relative_to(folder).as_posix() for file in there}
        for page in (*(folder / "clusters").glob("*.html"), *site.earlier.gone(names)):
            if page not in there:
                page.unlink(missing_ok=True)


@contextmanager
def _claimed(folder: Path) -> Iterator[Path]:
    """A folder inside `folder` for the unfinished site. Raises ChoiceError if `folder` holds anything but a report."""
    with created_folders(folder):
        with writing(folder):
            if not _is_free(folder):
                raise ChoiceError(str(folder), "expected a new or empty folder, or an earlier report")
            unfinished = Path(tempfile.mkdtemp(dir=folder, prefix=UNFINISHED))
        try:
            yield unfinished
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)


def _is_free(folder: Path) -> bool:
    """Whether the folder is empty or a report, after what a killed report left unfinished was deleted."""
    unfinished = list(folder.glob(f"{UNFINISHED}*"))
    is_empty = len(unfinished) == len(list(folder.iterdir()))
    if not is_empty and not (folder / MARK).is_file():
        return False
    for entry in unfinished:
        shutil.rmtree(entry, ignore_errors=True)
    return True
