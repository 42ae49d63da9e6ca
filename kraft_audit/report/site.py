"""Writes the pages: static files that need nothing but themselves.

Everything that a log, a lake or a waiver told reaches a page by one way: `shown`, which every expression of every
template passes. It makes control characters and bidirectional marks visible, then escapes. The pages allow the one
style sheet and the one script that stand in them, by hash, and nothing else: no request leaves, no other script runs.
"""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from kraft_audit.cluster_name import shown_cluster_id
from kraft_audit.output import neutral
from kraft_audit.report.cluster import SUBJECTS_SHOWN, ClusterView, cluster_view
from kraft_audit.report.exports import CsvFile
from kraft_audit.report.exposure import partition_minutes
from kraft_audit.report.fleet import ClusterLine, Fleet, fleet_view
from kraft_audit.report.folders import created_folders
from kraft_audit.report.openmetrics import Metrics
from kraft_audit.report.plots import epoch_marks, interval_marks, voter_columns
from kraft_audit.report.source import AsOf, Source
from kraft_audit.rules.controls import CONTROL_OF
from kraft_audit.rules.pages import rule_rows
from kraft_audit.rules.registry import rules
from kraft_audit.times import duration, is_time, when
from kraft_codec.errors import ChoiceError, InputError

MARK: Final = ".kraft-audit-report"
"""A file of this name says that a folder is ours to write over."""
UNFINISHED: Final = ".unfinished-"
TEXT_CHARACTERS_MAX: Final = 4000
"""A longer text is cut on a page; findings.csv has it whole."""
_PLAIN_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class Written:
    """What a report came to."""

    index: Path
    clusters: int
    open_findings: int
    files: int
    size_bytes: int
    not_read: int = 0


def shown(value: Any) -> Any:
    """The one sink: any value as text in which nothing acts, escaped; only markup of our own templates passes."""
    if isinstance(value, Markup):
        return value
    if value is None:
        raise TypeError("a template must say what is not known")
    text = str(value)
    if len(text) > TEXT_CHARACTERS_MAX:
        text = f"{text[:TEXT_CHARACTERS_MAX]}… ({len(text)} characters)"
    return Markup.escape(neutral(text))


def time_of(value: int | None) -> str:
    """A time in UTC, or what stands for none."""
    if value is None:
        return "not known"
    return f"{when(value)} UTC" if value and is_time(value) else f"{value} ms"


def length_of(length_ms: int | None) -> str:
    return "not known" if length_ms is None else duration(length_ms)


def nodes(ids: tuple[int, ...] | list[int] | None) -> str:
    return "not known" if ids is None else "[" + " ".join(map(str, ids)) + "]"


def known(value: Any) -> Any:
    """A value, or the words that there is none."""
    return "not known" if value is None else value


def counted(value: int | float) -> str:
    return f"{value:,.0f}"


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun[:-1] + 'ies' if noun.endswith('y') else noun + 's'}"


def page_of(cluster_id: str) -> str:
    """The file of a cluster's page; an id that is no Kafka id gets a name made from its hash."""
    if _PLAIN_ID.fullmatch(cluster_id):
        return f"clusters/{cluster_id}.html"
    digest = hashlib.blake2b(cluster_id.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
    return f"clusters/other.{digest}.html"


@cache
def _asset(name: str) -> str:
    return files("kraft_audit.report").joinpath("assets", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def policy() -> str:
    """The content security policy of every page."""
    return (
        f"default-src 'none'; style-src '{_hash(_asset('site.css'))}'; script-src '{_hash(_asset('site.js'))}'; "
        "img-src data:; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"
    )


@cache
def environment() -> Environment:
    """The templates, with escaping on and names that are missing an error."""
    made = Environment(
        loader=PackageLoader("kraft_audit.report"),
        autoescape=True,
        finalize=shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    helpers: dict[str, Callable[..., Any]] = {
        "time": time_of,
        "length": length_of,
        "nodes": nodes,
        "known": known,
        "counted": counted,
        "cluster": shown_cluster_id,
        "partition_minutes": partition_minutes,
    }
    made.filters.update(helpers)
    made.globals.update(
        plural=plural,
        page_of=page_of,
        policy=policy(),
        # our own files, not what anybody else wrote
        style=Markup(_asset("site.css")),  # noqa: S704
        script=Markup(_asset("site.js")),  # noqa: S704
    )
    return made


def write_site(source: Source, folder: Path) -> Written:
    """Write the site into a folder that is new, empty, or an earlier report. Raises InputError.

    The site is made whole beside its place, then put there: one that fails leaves nothing, or what was there before.
    """
    with _claimed(folder) as unfinished:
        site = _Site(unfinished, source.as_of())
        lines = _write_pages(source, site)
        (unfinished / MARK).write_text("made by kraft-audit report, which writes over this folder\n")
        sizes = [file.stat().st_size for file in site.written]
        _put_in_place(site, folder)
    opened = sum(sum(line.open_counts.values()) for line in lines)
    not_read = len(site.as_of.not_read)
    return Written(folder / "index.html", len(lines), opened, len(sizes), sum(sizes), not_read)


def _write_pages(source: Source, site: _Site) -> list[ClusterLine]:
    fleet, metrics = Fleet(), Metrics(site.as_of)
    findings = site.folder / "findings.csv"
    try:
        with CsvFile(findings) as csv:
            for given in source.clusters():
                view, page = cluster_view(given), page_of(given.cluster_id)
                fleet.add(given, view, page)
                csv.add(given.findings)
                metrics.add(given)
                site.write(page, "cluster.html", **_cluster_page(view))
    except OSError as problem:
        raise InputError(str(findings), f"cannot be written: {problem.strerror or problem}") from None
    site.written.append(findings)
    site.put("metrics.prom", "".join(metrics.lines()))
    view_of_fleet = fleet_view(fleet, days_only=any(line.exposure.by_day is not None for line in fleet.lines))
    site.write("index.html", "fleet.html", **view_of_fleet)
    for row in rule_rows():
        where = fleet.rule_clusters.get(row["rule"], [])
        site.write(
            f"rules/{row['rule']}.html",
            "rule.html",
            rule=row,
            meanings={one.name: one.comment for one in rules()[row["rule"]].thresholds},
            control=CONTROL_OF[row["rule"]].replace("_", " "),
            counts=fleet.rule_counts.get(row["rule"], {}),
            where=sorted(where, key=lambda one: (-one[1], one[0].cluster_id)),
        )
    site.write("rules/index.html", "rules.html", rules=rule_rows(), counts=fleet.rule_counts)
    return fleet.lines


def _cluster_page(view: ClusterView) -> dict[str, Any]:
    return {
        "view": view,
        "interval": interval_marks(view.replicas, view.watermark),
        "voters": voter_columns(view.voter_sets),
        "epochs": epoch_marks(view.leader_epochs),
        "subjects_shown": SUBJECTS_SHOWN,
    }


class _Site:
    """Pages go to their place whole, each at once: a reader never sees half a page."""

    def __init__(self, folder: Path, as_of: AsOf) -> None:
        self.folder = folder
        self.as_of = as_of
        self.written: list[Path] = []

    def write(self, name: str, template: str, **values: Any) -> None:
        up = "../" * name.count("/")
        page = environment().get_template(template)
        self.put(name, page.render(up=up, as_of=self.as_of, page=name, **values))

    def put(self, name: str, text: str) -> None:
        target = self.folder / name
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        except OSError as problem:
            raise InputError(str(target), f"cannot be written: {problem.strerror}") from None
        self.written.append(target)


def _put_in_place(site: _Site, folder: Path) -> None:
    """Move every page to its place, each at once, the mark first; then drop the pages of clusters that are gone."""
    try:
        (site.folder / MARK).replace(folder / MARK)
        placed = set()
        for file in site.written:
            target = folder / file.relative_to(site.folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            file.chmod(0o644)
            file.replace(target)
            placed.add(target)
        for page in (folder / "clusters").glob("*.html"):
            if page not in placed:
                page.unlink()
    except OSError as problem:
        raise InputError(str(folder), f"cannot be written: {problem.strerror}") from None


@contextmanager
def _claimed(folder: Path) -> Iterator[Path]:
    """A place inside the folder for what is not whole yet; nothing that is no report is written over."""
    with created_folders(folder):
        try:
            if not _is_free(folder):
                raise ChoiceError(str(folder), "expected a new or empty folder, or an earlier report")
            unfinished = Path(tempfile.mkdtemp(dir=folder, prefix=UNFINISHED))
        except OSError as problem:
            raise InputError(str(folder), f"cannot be written: {problem.strerror}") from None
        try:
            yield unfinished
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)


def _is_free(folder: Path) -> bool:
    """A report that was killed leaves what it had not finished, which goes."""
    if not folder.is_dir():
        return False
    others = [one for one in folder.iterdir() if not one.name.startswith(UNFINISHED)]
    if others and not _is_report(folder):
        return False
    for left in set(folder.iterdir()) - set(others):
        shutil.rmtree(left, ignore_errors=True)
    return True


def _is_report(folder: Path) -> bool:
    """Also one that was interrupted."""
    return (folder / MARK).is_file()
