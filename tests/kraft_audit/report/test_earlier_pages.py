"""A report over an earlier one writes what changed alone, and leaves what a whole report writes, byte by byte."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from kraft_audit.commands.cli import run_command
from kraft_audit.report import lake_source
from kraft_audit.report.earlier_pages import PAGES_FILE, file_hash
from kraft_audit.report.lake_source import LakeSource
from kraft_audit.report.since_last import INCIDENTS_FILE
from kraft_audit.report.site import MARK, write_site
from kraft_audit.text.page_names import page_of
from tests.builders.captures import SMALL_CORPUS

pytestmark = pytest.mark.slow  # a lake is made first

OF_FLEET = {"index.html", "metrics.prom", INCIDENTS_FILE, PAGES_FILE}
WAIVERS = """
waivers:
  - {rule: %s, who: a team, why: known, until: 2999-01-01}
"""
Bytes = dict[str, bytes]


class Site:
    """A lake that runs read, its pages, and the clusters that a report asked `may-i` about."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.pages = folder / "site"
        self.asked: list[str] = []
        self._now_ns = 10**18 * 2
        self._fleet: dict[str, Any] = {"lake": "lake", "redaction_key_file": "key", "clusters": []}
        monkeypatch.setattr(lake_source, "time", SimpleNamespace(time_ns=lambda: self._now_ns))
        permissions = LakeSource._permissions

        def asked(source: LakeSource, given: Any, *more: Any) -> Any:
            self.asked.append(given.name)
            return permissions(source, given, *more)

        monkeypatch.setattr(LakeSource, "_permissions", asked)

    def source(self, *, has_pages: bool = False) -> LakeSource:
        return LakeSource(str(self.folder / "lake"), has_pages=has_pages)

    def run(self, **fleet: Any) -> None:
        self._fleet |= fleet
        (self.folder / "fleet.yaml").write_text(yaml.safe_dump(self._fleet))
        with contextlib.chdir(self.folder):
            assert run_command(["run", "fleet.yaml", "--engine", "local", "--quiet"]) == 0

    def report(self) -> tuple[set[str], list[str]]:
        """Write the pages over the earlier ones: the files written, without those of the whole fleet, and the clusters
        asked about. The result is what a whole report writes."""
        self._now_ns += 3_600 * 10**9
        whole, fresh = self.folder / "whole", self.folder / "fresh"
        for place in (whole, fresh):
            shutil.rmtree(place, ignore_errors=True)
        if (self.pages / MARK).exists():
            whole.mkdir()
            for name in (MARK, INCIDENTS_FILE):
                shutil.copy(self.pages / name, whole)
        before = {name: (self.pages / name).stat().st_mtime_ns for name in contents(self.pages)}
        for place in (whole, fresh, self.pages):
            self.asked.clear()
            write_site(self.source(has_pages=True), place)
        now = contents(self.pages)
        assert now == contents(whole)
        assert now.keys() == contents(fresh).keys()
        assert {name for name, octets in contents(fresh).items() if octets != now[name]} <= {"index.html", PAGES_FILE}
        written = {name for name in now if (self.pages / name).stat().st_mtime_ns != before.get(name)}
        return {name for name in written - OF_FLEET if not name.startswith(("controls/", "oscal/"))}, self.asked


def contents(folder: Path) -> Bytes:
    return {
        file.relative_to(folder).as_posix(): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()
    }


@pytest.fixture(scope="module")
def two_clusters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("two")
    with pytest.MonkeyPatch.context() as patch:
        Site(folder, patch).run(clusters=entries(torn="torn-write", diverged="divergence"))
    return folder


def entries(**paths: str) -> list[dict[str, Any]]:
    return [{"name": name, "paths": [str(SMALL_CORPUS / path)]} for name, path in paths.items()]


@pytest.fixture
def site(two_clusters: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    shutil.copytree(two_clusters, tmp_path, dirs_exist_ok=True, copy_function=shutil.copy2)
    site = Site(tmp_path, monkeypatch)
    site._fleet["clusters"] = entries(torn="torn-write", diverged="divergence")
    write_site(site.source(has_pages=True), site.pages)
    return site


def page(site: Site, title: str) -> str:
    given = {each.title: each for each in site.source().clusters()}
    return page_of(given[title].page_id)


def test_hours_in_which_clusters_change(site: Site) -> None:
    assert site.report() == (set(), []), "nothing changed"
    torn, diverged = page(site, "torn"), page(site, "diverged")
    site.run(clusters=entries(torn="torn-write", diverged="divergence", new="mini-4.4.0"))
    written, asked = site.report()
    assert (len([name for name in written if name.startswith("clusters/")]), asked) == (1, ["new"])
    assert not {torn, diverged} & written
    rule = waivable(site, "diverged")
    (site.folder / "waivers.yaml").write_text(WAIVERS % rule)
    site.run(waivers="waivers.yaml")
    written, asked = site.report()
    assert diverged in written
    assert "diverged" in asked
    (site.folder / "waivers.yaml").write_text("waivers: []\n")
    site.run()
    assert diverged in site.report()[0], "the waiver is gone"
    shutil.copytree(SMALL_CORPUS / "divergence", site.folder / "moved")  # a name is learnt where a plan reads by it
    moved = {"name": "renamed", "paths": [str(site.folder / "moved")]}
    site.run(clusters=[*entries(torn="torn-write", new="mini-4.4.0"), moved])
    written, asked = site.report()
    assert (diverged in written, torn in written, asked) == (True, False, ["renamed"])
    with contextlib.chdir(site.folder):
        assert run_command(["lake", "maintain", "lake"]) == 0
    assert site.report()[0] == set(), "the same rows in other files"


def waivable(site: Site, name: str) -> str:
    """A rule with an open finding in this cluster alone."""
    given = {each.name: each for each in site.source().clusters()}
    rules = {each: {row["rule"] for row in given[each].findings if row["state"] == "open"} for each in given}
    others = set().union(*(found for each, found in rules.items() if each != name))
    return min(rules[name] - others or rules[name])


def test_a_new_version_of_the_rules_writes_every_page(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake_source, "rules_version", lambda: "another")
    written, asked = site.report()
    assert {page(site, "torn"), page(site, "diverged")} <= written
    assert sorted(asked) == ["diverged", "torn"]


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"format": "kraft-audit pages 1", "files": 3, "made_of": []}'])
def test_a_damaged_list_of_pages_is_none(damage: str, site: Site) -> None:
    (site.pages / PAGES_FILE).write_text(damage)
    written, asked = site.report()
    assert (written, sorted(asked)) == (set(), ["diverged", "torn"]), "made again, and the same"


@pytest.mark.parametrize("how", ["edited", "missing", "a link"])
def test_a_page_that_is_not_as_it_was_written_is_written_again(how: str, site: Site) -> None:
    torn = site.pages / page(site, "torn")
    octets = torn.read_bytes()
    torn.unlink()
    if how == "edited":
        torn.write_bytes(octets[:-1])
    elif how == "a link":
        (site.folder / "elsewhere").write_bytes(octets)
        torn.symlink_to(site.folder / "elsewhere")
    written, asked = site.report()
    assert asked == ["torn"]
    assert written == {page(site, "torn")}
    assert not torn.is_symlink()
    assert how != "a link" or (site.folder / "elsewhere").read_bytes() == octets


def test_only_own_files_are_deleted(site: Site) -> None:
    """Pages of clusters that are gone, and other files that a report wrote and nobody changed."""
    listed = json.loads((site.pages / PAGES_FILE).read_text())
    outside = site.folder / "outside.html"
    made: dict[str, Callable[[], Path]] = {
        "rules/KX999.html": lambda: site.pages / "rules" / "KX999.html",
        "rules/mine.html": lambda: site.pages / "rules" / "mine.html",
        "../outside.html": lambda: outside,
        str(outside): lambda: outside,
    }
    for name, place in made.items():
        place().write_text("written by an earlier report")
        listed["files"][name] = file_hash(place())
    (site.pages / "rules" / "mine.html").write_text("a person's notes")
    (site.pages / "notes.txt").write_text("a person's notes")
    gone = site.pages / "clusters" / "AAAAAAAAAAAAAAAAAAAAAA.html"
    gone.write_text("a cluster that is another one's")
    (site.pages / PAGES_FILE).write_text(json.dumps(listed))
    site.asked.clear()
    write_site(site.source(has_pages=True), site.pages)
    assert not gone.exists()
    assert not (site.pages / "rules" / "KX999.html").exists()
    assert outside.exists()
    assert (site.pages / "rules" / "mine.html").read_text() == "a person's notes"
    assert (site.pages / "notes.txt").exists()
    assert site.asked == []
