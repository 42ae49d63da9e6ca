"""What stands on the pages: all that is known, nothing that is not, and no harm from any text."""

from __future__ import annotations

import csv
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest

import kraft_audit
from kraft_audit.commands.cli import run_command
from kraft_audit.findings.answer import SHOW_FINDINGS
from kraft_audit.findings.check_text import headline
from kraft_audit.report.cluster_page import cluster_view
from kraft_audit.report.partition_exposure import cluster_exposure, partition_minutes, spans
from kraft_audit.report.report_files import WRITERS, write_file
from kraft_audit.report.report_source import ClusterInput, HasPage, no_page
from kraft_audit.report.site import policy, shown, write_site
from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.registry import rules
from kraft_audit.text.page_names import page_of
from kraft_audit.text.readable import HOUR_MS, when
from kraft_codec.errors import InputError
from tests.builders.facts import facts
from tests.builders.payloads import PAYLOADS
from tests.builders.report_sources import NOW_MS, GivenSource, path_source

TAGS = {
    *("html", "head", "meta", "link", "title", "style", "body", "header", "nav", "main", "footer", "script", "section"),
    *("a", "div", "b", "span", "h1", "h2", "h3", "p", "ul", "ol", "li", "strong", "code", "mark", "br", "dl", "dt"),
    *("table", "caption", "thead", "tbody", "tr", "th", "td", "details", "summary", "dd"),
    *("button", "label", "input", "select", "option"),
    *("svg", "rect", "path", "line", "text", "circle", "g", "desc", "defs", "pattern"),
}
ATTRIBUTES_THAT_LOAD = {"src", "srcset", "action", "formaction", "background", "poster", "data", "ping", "style"}


class Page(HTMLParser):
    """A page as a browser takes it apart."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.own_titles = 0
        self._open = ""
        self._is_in_picture = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._open = tag
        self._is_in_picture |= tag == "svg"
        self.own_titles += tag == "title" and not self._is_in_picture

    def handle_endtag(self, tag: str) -> None:
        self._open = ""
        self._is_in_picture &= tag != "svg"

    def handle_data(self, data: str) -> None:
        if self._open not in ("script", "style"):
            self.text += data

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)

    def values(self, attribute: str) -> list[str]:
        return [attributes[attribute] or "" for _, attributes in self.tags if attribute in attributes]


@pytest.fixture(scope="module")
def harmed_site(harmed_clusters: list[ClusterInput], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("harmed") / "site"
    write_site(GivenSource(harmed_clusters), folder)
    return folder


@pytest.fixture(scope="module")
def site(last_replica: ClusterInput, reverted_change: ClusterInput, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "site"
    write_site(GivenSource([last_replica, reverted_change]), folder)
    return folder


@pytest.mark.slow
def test_no_text_becomes_a_tag_or_an_attribute(harmed_site: Path) -> None:
    for file in sorted(harmed_site.rglob("*.html")):
        page = Page(file.read_text())
        assert {tag for tag, _ in page.tags} <= TAGS, file
        assert page.count("script") == page.count("style") == page.own_titles == 1
        for tag, attributes in page.tags:
            assert not attributes.keys() & ATTRIBUTES_THAT_LOAD, (file, tag)
            assert not any(name.startswith("on") for name in attributes), (file, tag)


@pytest.mark.slow
def test_links_lead_nowhere_but_to_our_own_pages(harmed_site: Path) -> None:
    for file in sorted(harmed_site.rglob("*.html")):
        page = Page(file.read_text())
        ids = set(page.values("id"))
        for href in page.values("href"):
            if href == "data:,":
                continue
            assert re.fullmatch(
                r"(\.\./)?([A-Za-z0-9_.-]+/)?[A-Za-z0-9_.-]+\.(html|csv|prom)(#.+)?|#[A-Za-z0-9_.-]+", href
            ), href
            if href.startswith("#"):
                assert href[1:] in ids, (file, href)
            else:
                assert (file.parent / href.partition("#")[0]).resolve().is_relative_to(harmed_site.resolve())
                assert (file.parent / href.partition("#")[0]).is_file(), (file, href)


def test_what_acts_unseen_is_shown(harmed_site: Path) -> None:
    text = "".join(file.read_text() for file in (harmed_site / "clusters").iterdir())
    acting = {c for c in set(text) if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp", "Co", "Cn")} - {"\n"}
    assert not acting
    assert "\\u202egpj.exe" in text
    assert "&lt;script&gt;window.top.harmed" in text
    assert len(PAYLOADS) >= 500
    assert not [payload for payload in PAYLOADS if str(shown(payload)) not in text], "every payload is on a page"


def test_csv_holds_no_formula(harmed_site: Path) -> None:
    with (harmed_site / "findings.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    cells = [cell for row in rows for cell in row]
    assert any(cell.startswith("'=HYPERLINK") for cell in cells)
    assert not [cell for cell in cells if cell[:1] in "=+@\t\r\n" and cell]
    assert not [cell for cell in cells if cell.startswith("-") and not re.fullmatch(r"-\d+", cell)]


def test_the_policy_names_what_stands_in_the_page(site: Path) -> None:
    import base64
    import hashlib

    text = (site / "index.html").read_text()
    assert "default-src 'none'" in policy()
    assert "unsafe" not in policy()
    for tag in ("style", "script"):
        inside = text.split(f"<{tag}>", 1)[1].split(f"</{tag}>", 1)[0]
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy()
    assert f'content="{policy().replace(chr(39), "&#39;")}"' in text


def test_a_cluster_page_reports_what_check_reports(site: Path, last_replica: ClusterInput) -> None:
    page = Page((site / page_of(last_replica.cluster_id)).read_text())
    text = re.sub(r"\s+", " ", page.text)
    raised = [f for f in last_replica.findings if f["status"] == "raised"]
    assert raised
    for finding in raised:
        assert finding["finding_id"] in text
        assert re.sub(r"\s+", " ", finding["summary"]) in text
        assert finding["what_to_do"] in text or sum(f["rule"] == finding["rule"] for f in raised) > 1
    assert "elr-m1-0" in text
    assert text.count("189") >= 2, "the end that is proven, and the log's"


def test_a_cluster_page_opens_with_the_answer_and_the_incidents_of_check(
    site: Path, samples: Path, last_replica: ClusterInput, capsys: pytest.CaptureFixture[str]
) -> None:
    run_command(["check", str(samples / "elr-06-kill-13-last-replica.tgz"), "--include-resolved"])
    printed = re.sub(r"\s+", " ", capsys.readouterr().out)
    text = re.sub(r"\s+", " ", Page((site / page_of(last_replica.cluster_id)).read_text()).text)
    assert last_replica.situation.lines
    assert last_replica.incidents
    markup = (site / page_of(last_replica.cluster_id)).read_text()
    numbers = set(re.findall(r'<a href="#incident-(\d+)" aria-label="[^"]+"><circle', markup))
    assert numbers == set(re.findall(r'<section [^>]*id="incident-(\d+)"', markup)) == {"1", "2"}
    lines = (re.sub(r"\s+", " ", line.text) for line in last_replica.situation.lines)
    for said in (*lines, *(row["headline"] for row in last_replica.incidents)):
        assert said in printed
        assert said in text
    assert [line.word for line in last_replica.situation.lines] == ["QUORUM", "PARTITIONS", "NEXT"]
    assert text.index(last_replica.situation.lines[0].text) < text.index(last_replica.incidents[0]["headline"])
    lasting = [row["headline"] for row in last_replica.incidents if row["is_open"]]
    fleet = re.sub(r"\s+", " ", Page((site / "index.html").read_text()).text)
    assert all(headline in fleet for headline in lasting)


def test_a_page_and_check_report_of_one_span_of_time(site: Path, samples: Path, last_replica: ClusterInput) -> None:
    """It begins no later than what is said to last since, of what the disk was formatted with, too."""
    text = re.sub(r"\s+", " ", Page((site / page_of(last_replica.cluster_id)).read_text()).text)
    begin, end = re.search(r"time covered by the log ?(\S+ \S+) UTC to (\S+ \S+) UTC", text).groups()
    (cluster,) = kraft_audit.open(str(samples / "elr-06-kill-13-last-replica.tgz"))
    history = cluster.history
    assert f"{begin} to {end.split()[1]} UTC" in headline(history)
    assert min(re.findall(r"since (\d\S+ \S+) UTC", text)) == begin == "2026-11-21 01:33:36"
    assert when(min(row["base_timestamp_ms"] for row in history.rows("batches"))) == begin


@pytest.mark.slow
def test_a_page_reports_every_advice_and_whom_it_is_for(small_corpus: Path, tmp_path: Path) -> None:
    """Seven of sixteen partitions without a leader wait for another broker than the rest."""
    (given,) = path_source(small_corpus / "elr").clusters()
    write_site(GivenSource([given]), tmp_path / "site")
    text = re.sub(r"\s+", " ", Page((tmp_path / "site" / page_of(given.cluster_id)).read_text()).text)
    for named, broker_ids in (
        ("8: elr-a-0 elr-a-1 elr-b-1 elr-c-0 …", {"11"}),
        ("7: elr-4-0 elr-a-2 elr-b-0 elr-c-1 …", {"14"}),
        ("1: elr-u-0", {"11", "12"}),
    ):
        assert facts(text.partition(named)[2][:80]) == broker_ids


def test_partitions_of_one_moment_stand_in_the_order_of_their_numbers(small_corpus: Path) -> None:
    (given,) = path_source(small_corpus / "mini-3.9.2").clusters()
    group = next(group for group in cluster_view(given).stopped_groups if group.rule == "KP001")
    numbers = [
        int(finding["subject"].rpartition("-")[2]) for finding in group.findings if finding["subject"].startswith("m2-")
    ]
    assert len(numbers) > 10
    assert numbers == sorted(numbers)


def test_every_rule_has_a_page(site: Path) -> None:
    assert {file.stem for file in (site / "rules").iterdir()} == {"index", *rules()}
    for rule in rules().values():
        text = Page((site / "rules" / f"{rule.id}.html").read_text()).text
        assert all(
            f"{threshold.name} = {threshold.default} {threshold.comment}" in text for threshold in rule.thresholds
        ), rule.id


def test_tables_have_headings_and_pages_a_language(site: Path) -> None:
    for file in site.rglob("*.html"):
        page = Page(file.read_text())
        assert ("html", {"lang": "en"}) in page.tags
        assert page.count("table") == page.count("caption") == page.count("thead")
        assert page.count("h1") == page.count("main") == 1
        assert all("scope" in attributes for tag, attributes in page.tags if tag == "th")
        labelled = set(page.values("for"))
        assert {attributes["id"] for tag, attributes in page.tags if tag in ("input", "select")} <= labelled
        ids = page.values("id")
        assert len(ids) == len(set(ids)), file


def test_what_is_not_known_is_said(tmp_path: Path) -> None:
    nothing = ClusterInput(ClusterHistory("AAAAAAAAAAAAAAAAAAAAAA", {}), [])
    write_site(GivenSource([nothing]), tmp_path / "site")
    text = Page((tmp_path / "site" / page_of("AAAAAAAAAAAAAAAAAAAAAA")).read_text()).text
    for said in ("The captures do not show what was committed", "Partitions were not read", "No voter set is known"):
        assert said in text
    assert "No leader epoch is known" in text
    assert cluster_view(nothing).clear_rules == ()
    assert "not judged" in text
    assert not re.search(r"(?<!not )\bmet\b", text.partition("Controls")[2]), (
        "no rule was checked, so no control is met"
    )
    assert "Partitions were not read" in text
    assert "no log" in (tmp_path / "site" / "index.html").read_text()


def test_exposure_counts_each_minute_of_a_partition_once(last_replica: ClusterInput) -> None:
    """Against the rows themselves, one by one."""
    history = last_replica.history
    rows = sorted(
        history.rows("partition_changes"), key=lambda row: (row["topic_id"], row["partition"], row["from_offset"])
    )
    total_ms = 0
    for row, after in zip(rows, [*rows[1:], None], strict=True):
        is_last = after is None or (after["topic_id"], after["partition"]) != (row["topic_id"], row["partition"])
        until = history.end_ms if is_last else after["timestamp_ms"]
        could = set(row["isr"]) | set(row["elr"])
        exposed = row["leader"] == -1 or (len(could) == 1 < len(row["replicas"]))
        if row["exists"] and (exposed or len(row["isr"]) < row["effective_min_isr"]):
            total_ms += until - row["timestamp_ms"]
    exposure = cluster_exposure(ClusterInput(history, []))
    start = exposure.from_ms // HOUR_MS * HOUR_MS
    (minutes,) = exposure.within([start, start + 2 * HOUR_MS])
    assert total_ms > 0
    assert minutes == pytest.approx(total_ms / 60_000)
    assert exposure.within([start - 2 * HOUR_MS, start - HOUR_MS]) == [None]


def test_a_page_stays_small_whatever_a_text_holds(reverted_change: ClusterInput, tmp_path: Path) -> None:
    finding = next(dict(finding) for finding in reverted_change.findings if finding["status"] == "raised")
    finding["summary"] = "<" * 1_000_000
    finding["evidence"] = [{**finding["evidence"][0], "text": f"fact {number}"} for number in range(100)]
    write_site(GivenSource([ClusterInput(reverted_change.history, [finding])]), tmp_path / "site")
    file = tmp_path / "site" / page_of(reverted_change.cluster_id)
    text = Page(file.read_text()).text
    assert file.stat().st_size < 200_000
    assert "(1000000 characters)" in text
    assert "fact 39" in text
    assert re.search(r"\b60\b[^.]*findings\.csv", text)
    assert "fact 99" in (tmp_path / "site" / "findings.csv").read_text()


def test_spans_of_no_calendar_are_left_out() -> None:
    assert spans([-5, 10, 0], [5, 5, 60_000]).within([0, 60_000, 120_000]) == [1.0, 0.0]
    assert spans([0], [2**62]).open_at([1]) == [0]


def test_an_id_that_is_no_id_names_a_harmless_file() -> None:
    pages = [page_of(payload) for payload in [*PAYLOADS, "", "a/b", ".", "..", "x" * 500]]
    assert len(set(pages)) == len(pages)
    assert all(re.fullmatch(r"clusters/other\.[0-9a-f]{24}\.html", page) for page in pages)
    assert page_of("SPA6Lw-19VaaSAxl6jMkhw") == "clusters/SPA6Lw-19VaaSAxl6jMkhw.html"


def test_a_report_is_written_over_and_nothing_else(tmp_path: Path, reverted_change: ClusterInput) -> None:
    folder = tmp_path / "site"
    nothing = ClusterInput(ClusterHistory("AAAAAAAAAAAAAAAAAAAAAA", {}), [])
    write_site(GivenSource([nothing]), folder)
    write_site(GivenSource([reverted_change]), folder)
    assert [file.stem for file in (folder / "clusters").iterdir()] == [reverted_change.cluster_id]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "kept.txt").write_text("mine")
    with pytest.raises(InputError, match="expected a new or empty folder"):
        write_site(GivenSource([nothing]), tmp_path / "other")


def tree(folder: Path) -> dict[str, bytes | None]:
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@dataclass
class FailingSource(GivenSource):
    """One whose second cluster cannot be read."""

    def clusters(self, has_page: HasPage = no_page) -> Iterator[ClusterInput]:
        yield from self.given
        raise InputError("logs", "gone")


def test_a_report_that_fails_leaves_what_was_there(tmp_path: Path, reverted_change: ClusterInput) -> None:
    broken = FailingSource([reverted_change])
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "a" / "b" / "site", tmp_path / "empty"):
        with pytest.raises(InputError, match="gone"):
            write_site(broken, folder)
    for format_ in WRITERS:
        with pytest.raises(InputError, match="gone"):
            write_file(broken, format_, tmp_path / "c" / "d" / "file")
    assert tree(tmp_path) == {"empty": None}
    folder = tmp_path / "empty"
    write_site(GivenSource([reverted_change]), folder)
    before = tree(folder)
    with pytest.raises(InputError, match="gone"):
        write_site(broken, folder)
    assert tree(folder) == before
    # One that was killed leaves what it had not finished, and is no reason to refuse the next.
    (tmp_path / "killed" / ".unfinished-x").mkdir(parents=True)
    write_site(GivenSource([reverted_change]), tmp_path / "killed")
    assert tree(tmp_path / "killed").keys() == before.keys()
    (tmp_path / "a file").write_text("mine")
    with pytest.raises(InputError, match="expected a new or empty folder"):
        write_site(GivenSource([reverted_change]), tmp_path / "a file")


def test_a_file_is_replaced_as_the_help_says(
    tmp_path: Path, reverted_change: ClusterInput, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "findings.csv"
    out.write_text("an hour ago")
    assert write_file(GivenSource([reverted_change]), "csv", out) == 1
    assert out.read_text().startswith("cluster_id,")
    assert run_command(["report", "--help"]) == 0
    reported = " ".join(capsys.readouterr().out.split())
    assert "It overwrites a folder only if the folder holds an earlier report. It always replaces a file." in reported
    assert "new file" not in reported


def test_waivers_are_shown_and_expired_ones_count_again(samples: Path, tmp_path: Path) -> None:
    from kraft_audit.rules.rule_model import Waiver

    waivers = (
        Waiver("KB003", "*", "broker 11", "Ada <ada@example.org>", "a network of ours", "2027-01-01"),
        Waiver("KB003", "*", "broker 12", "Ada", "was to be replaced", "2026-01-01"),
    )
    source = path_source(samples / "elr-06-kill-13-last-replica.tgz", waivers=waivers)
    assert source.now_ms == NOW_MS
    write_site(source, tmp_path / "site")
    text = Page((tmp_path / "site" / "index.html").read_text()).text
    assert "Ada <ada@example.org>" in text
    assert "expired" in text


@pytest.mark.parametrize(
    ("minutes", "said"),
    [
        (0.0, "0 partition-minutes"),
        (1 / 60_000, "0.000017 partition-minutes"),
        (4 * 6.8 / 60, "0.45 partition-minutes"),
        (1.0, "1 partition-minute"),
        (6.83, "6.8 partition-minutes"),
        (9.96, "10 partition-minutes"),
        (1234.4, "1,234 partition-minutes"),
    ],
)
def test_a_little_exposure_is_not_reported_as_none(minutes: float, said: str) -> None:
    assert partition_minutes(minutes) == said


def test_the_words_report_the_largest_exposure(last_replica: ClusterInput, tmp_path: Path) -> None:
    """Against the exposure itself."""
    exposure = cluster_exposure(last_replica)
    start = exposure.from_ms // HOUR_MS * HOUR_MS
    largest = max(minutes for minutes in exposure.within(range(start, start + 3 * HOUR_MS, HOUR_MS)) if minutes)
    write_site(GivenSource([last_replica]), tmp_path / "exposed")
    page = Page((tmp_path / "exposed" / "index.html").read_text())
    reported = re.search(r"exposed in 1 of 1 hour, most ([0-9.]+) partition-minutes?", page.text)
    assert float(reported[1]) == pytest.approx(largest, rel=0.05)


def test_each_history_of_a_cluster_id_has_its_page(captured_logs: Path, tmp_path: Path) -> None:
    """Two quorums of one id are two pages, two rows and two titles: none is written over the other's."""
    given = list(path_source(captured_logs / "split").clusters())
    assert len({each.cluster_id for each in given}) < len(given), "several histories of one id"
    write_site(GivenSource(given), tmp_path / "site")
    pages = sorted((tmp_path / "site" / "clusters").glob("*.html"))
    assert len(pages) == len(given)
    series = re.findall(r"^(\w+\{.*?\}) ", (tmp_path / "site" / "metrics.prom").read_text(), re.MULTILINE)
    assert series
    assert len(series) == len(set(series)), "no series twice"
    fleet = (tmp_path / "site" / "index.html").read_text()
    for each in given:
        page = (tmp_path / "site" / page_of(each.page_id)).read_text()
        assert f"<b>{each.title}</b>" in page
        assert f'href="{page_of(each.page_id)}"' in fleet
        texts = [line.text.replace(SHOW_FINDINGS, "") for line in each.situation.lines]
        assert all(text.split("   ")[0] in unescape(page) for text in texts)
