"""What each surface says of a cluster, as answers to the same questions: asked of outputs, not of what makes them."""

from __future__ import annotations

import contextlib
import csv
import html
import io
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

import kraft_audit
from kraft_audit.commands.cli import run_command
from kraft_audit.findings.answer import AnswerLine, answer_lines
from kraft_audit.findings.finding_formats import csv_rows, finding_rows, selected
from kraft_audit.findings.ocsf import ocsf_events
from kraft_audit.findings.sarif import sarif
from kraft_audit.incidents.incident import incident_row
from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.views import gold_view_sql
from kraft_audit.report.lake_source import LakeSource
from kraft_audit.report.site import page_of
from kraft_audit.tables.gold import CLUSTER_HEALTH, GOLD, OPEN_FINDINGS, SEVERITIES
from kraft_audit.tables.silver import LEADER_EPOCHS, REPLAYS, WATERMARKS
from tests.builders.lakes import write_fleet

Answers = dict[str, Any]
"""Answers by question; a question that a surface does not answer is missing."""
SARIF_OPEN = {"error": 2, "warning": 1}


def printed(*words: str) -> tuple[int, str]:
    """The exit code of a command and what it prints."""
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()):
        code = run_command(list(words))
    return code, out.getvalue()


def counted(severities: Sequence[str | None]) -> dict[str, int]:
    count = Counter(severities)
    return {severity: count[severity] for severity in SEVERITIES}


def of_rows(rows: Sequence[Mapping[str, Any]]) -> Answers:
    """Of findings as rows."""
    states = Counter(row["state"] for row in rows)
    return {
        "open": counted([row["severity_now"] or None for row in rows]),
        "folded": states["folded"],
        "accepted": states["waived"] + states["acknowledged"],
        "undecided": states["undecided"],
    }


def of_path(path: Path) -> dict[str, Answers]:
    """What `check` and `check --incidents` say of the one cluster below a path, format by format."""
    code, as_json = printed("check", str(path), "--output", "json")
    with kraft_audit.open(str(path)) as clusters:
        (cluster,) = clusters
        folded = cluster.incidents()
        lines = list(answer_lines(cluster.history, folded, str(path)))
        events = ocsf_events(finding_rows(selected(folded.findings)), "1")
        incidents = [incident_row(cluster.cluster_id, incident) for incident in folded.incidents]
        table = cluster.findings().to_pylist()
    return {
        "json": {**of_rows(json.loads(as_json)), "exit_code": code},
        "csv": of_rows(csv_rows(folded.findings)),
        "table": of_rows(table),
        "sarif": _of_sarif(sarif(folded.findings, version="1")),
        "ocsf": of_rows([event["unmapped"] for event in events]),
        "text": _of_text(lines),
        "incidents": {"incidents": sorted(row["headline"] for row in incidents if row["state"] == "open")},
    }


def _of_sarif(document: Mapping[str, Any]) -> Answers:
    (run,) = document["runs"]
    results = run["results"]
    for result in results:
        is_open = result["properties"]["state"] == "open"
        assert (result["level"] in SARIF_OPEN) <= is_open, "only what is open is more than a note"
    assert all(rule["helpUri"].startswith("https://") for rule in run["tool"]["driver"]["rules"])
    return of_rows(
        [
            {
                "state": result["properties"]["state"],
                "severity_now": result["properties"]["severity"] if result["properties"]["state"] == "open" else None,
            }
            for result in results
        ]
    )


def _of_text(lines: Sequence[AnswerLine]) -> Answers:
    text = " ".join(line.text for line in lines if not line.is_header)
    committed = re.search(r"committed (?:at least )?through offset (\d+)", text)
    says_ok = any(line.word == "OK" for line in lines)
    return {"says OK": says_ok, **({"committed_to": int(committed[1]) + 1} if committed else {})}


@dataclass(frozen=True)
class AskedLake:
    """A lake of some captures, by name, with what the run over it printed as JSON, and a site."""

    uri: str
    site: Path
    as_json: Mapping[str, Any]


def lake_of(paths: Mapping[str, Path], folder: Path) -> AskedLake:
    lake, site = write_fleet(folder, {name: [path] for name, path in paths.items()}).lake, folder / "site"
    _, as_json = printed("run", str(folder / "fleet.yaml"), "--engine", "local", "--output", "json")
    assert printed("report", lake, "--out", str(site))[0] == 0
    return AskedLake(lake, site, json.loads(as_json))


def of_lake(asked: AskedLake, folder: Path) -> Iterator[tuple[str, str, Answers]]:
    """(cluster, surface, its answers) of the lake, its pages, metrics and messages."""
    lake = DeltaLake(asked.uri)
    known = list(LakeSource(asked.uri).clusters())
    names = {given.cluster_id: given.name or "" for given in known}
    for name, answers in _of_tables(lake, names):
        yield name, "tables", answers
    for row in lake.query("SELECT * FROM situations", "situations").to_pylist():
        yield names[row["cluster_id"]], "situations", _of_situation(row)
    view = gold_view_sql(CLUSTER_HEALTH.name, str)
    tables = (*GOLD, "clusters", "histories", "plans", WATERMARKS.name, LEADER_EPOCHS.name, REPLAYS.name)
    for row in lake.query(view, *tables).to_pylist():
        found = {severity: row[f"open_{severity}"] for severity in SEVERITIES}
        yield names[row["cluster_id"]], "cluster_health", {"open": found, "undecided": row["undecided_findings"]}
    for state in asked.as_json["states"]:
        yield (
            state["name"],
            "run",
            {
                "needs action": state["needs_action"],
                "what": state["wrong"],
                "since_ms": state["since_ms"],
                "command": state["next_command"],
                "open": dict(state["findings"]),
            },
        )
    yield from _of_site(asked.site, names, {given.cluster_id: page_of(given.page_id) for given in known})
    yield from _of_messages(asked, folder, names)


def _of_tables(lake: DeltaLake, names: Mapping[str, str]) -> Iterator[tuple[str, Answers]]:
    view = gold_view_sql(OPEN_FINDINGS.name, str)
    opened = lake.query(
        view, *GOLD, "clusters", "histories", "plans", *(WATERMARKS.name, LEADER_EPOCHS.name)
    ).to_pylist()
    every = lake.query("SELECT * FROM findings", "findings").to_pylist()
    incidents = lake.query("SELECT * FROM incidents WHERE state = 'open'", "incidents").to_pylist()
    for id_, name in names.items():
        own = [row for row in every if row["cluster_id"] == id_]
        answers = of_rows(own)
        assert counted([row["severity"] for row in opened if row["cluster_id"] == id_]) == answers["open"]
        answers["incidents"] = sorted(row["headline"] for row in incidents if row["cluster_id"] == id_)
        yield name, answers


def _of_situation(row: Mapping[str, Any]) -> Answers:
    counts = ("folded", "accepted", "undecided", "exit_code", "what", "since_ms", "command", "committed_to")
    return {
        **{name: row[name] for name in counts},
        **{name: row[name] for name in ("leaderless", "at_one_replica")},
        "open": {severity: row[f"open_{severity}"] for severity in SEVERITIES},
        "needs action": row["need"] is not None,
        "says OK": row["lines"][0]["word"] == "OK",
    }


SAMPLE = re.compile(r"kraft_audit_(\w+)\{(.*)\} (\S+)")


def _of_site(site: Path, names: Mapping[str, str], files: Mapping[str, str]) -> Iterator[tuple[str, str, Answers]]:
    figures: dict[str, dict[str, Any]] = {name: {"open": Counter()} for name in names.values()}
    for line in (site / "metrics.prom").read_text().splitlines():
        match = SAMPLE.fullmatch(line)
        labels = dict(re.findall(r'(\w+)="([^"]*)"', match[2])) if match else {}
        if match is None or labels.get("cluster") not in figures:
            continue
        own, value = figures[labels["cluster"]], int(float(match[3]))
        if match[1] == "findings_open":
            own["open"][labels["severity"]] += value
        elif match[1] in ("offline_partition_count", "last_replica_partition_count", "high_watermark_low"):
            own[match[1]] = value
    for name, own in figures.items():
        yield (
            name,
            "metrics",
            {
                "open": {severity: own["open"][severity] for severity in SEVERITIES},
                **{
                    question: own[family]
                    for question, family in (
                        ("leaderless", "offline_partition_count"),
                        ("at_one_replica", "last_replica_partition_count"),
                    )
                    if family in own
                },
            },
        )
    fleet = _text(site / "index.html")
    for id_, name in names.items():
        page = _text(site / files[id_])
        controls = csv.DictReader((site / "controls.csv").read_text().splitlines())
        is_red = any(row["cluster"] == name and row["result"] == "not_met" for row in controls)
        yield name, "pages", {"fleet page": fleet, "page": page, "not met": is_red}


def _text(page: Path) -> str:
    """The text of a page as a person reads it."""
    body = re.sub(r"<(style|script)[^>]*>.*?</\1>", " ", page.read_text(), flags=re.DOTALL)
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", body)))


def _of_messages(asked: AskedLake, folder: Path, names: Mapping[str, str]) -> Iterator[tuple[str, str, Answers]]:
    config = folder / "notify.yaml"
    routes = {
        "severity": "high",
        "targets": {"hook": {"webhook": "https://hook.invalid/"}},
        "routes": [{"to": ["hook"]}],
    }
    config.write_text(yaml.safe_dump(routes))
    code, out = printed("notify", asked.uri, "--config", str(config), "--dry-run", "--output", "json")
    assert code == 0, out
    messages = [row for row in json.loads(out) if row["event"] == "opened"]
    for name in names.values():
        yield name, "messages", {"is alarmed": any(row["cluster"] == name for row in messages)}
