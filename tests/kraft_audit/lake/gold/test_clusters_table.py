"""Names and labels of clusters: what fleet.yaml says now holds, what it said before stays in the table."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from kraft_audit.commands.cli import run_command
from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.gold.clusters_table import changed_rows, known_clusters
from kraft_audit.lake.settings import ClusterSettings, FleetSettings, SettingsError, load_fleet
from kraft_audit.lake.views import LABELLED, labelled_sql
from kraft_audit.tables.gold import CLUSTERS, GOLD
from tests.builders.lakes import CLUSTERS as NAMES

ID = "SPA6Lw-19VaaSAxl6jMkhw"


def entry(name: str = "orders-eu", **values: Any) -> ClusterSettings:
    return ClusterSettings(name=name, paths=["/x"], **values)


def after(known: dict[str, dict[str, Any]], cluster: ClusterSettings, now_ms: int) -> list[dict[str, Any]]:
    rows = changed_rows(known, {ID: cluster}, now_ms, 7)
    known |= {row["cluster_id"]: row for row in rows}
    return rows


def test_a_row_is_added_for_what_changed_only() -> None:
    known: dict[str, dict[str, Any]] = {}
    (first,) = after(known, entry(labels={"owner": "payments", "tier": 1}), 1000)
    assert (first["cluster_name"], first["owner"], first["tier"], first["contact"]) == (
        "orders-eu",
        "payments",
        "1",
        None,
    )
    assert after(known, entry(labels={"owner": "payments", "tier": "1"}), 2000) == []
    assert after(known, entry(), 2000) == [], "an entry without the key says nothing about labels"
    (renamed,) = after(known, entry("orders"), 3000)
    assert (renamed["cluster_name"], renamed["owner"], renamed["valid_from_ms"]) == ("orders", "payments", 3000)
    (cleared,) = after(known, entry("orders", labels={}), 2500)
    assert (cleared["owner"], cleared["valid_from_ms"]) == (None, 3001), "a clock that went back hides nothing"


def test_an_unknown_label_is_named(tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text("lake: x\nclusters: [{name: a, paths: [x], labels: {ownr: me}}]")
    with pytest.raises(SettingsError, match=r"clusters\[0\].labels.ownr: 'me': expected a known key, perhaps owner"):
        load_fleet(file, environment={})


@pytest.mark.slow
def test_labels_are_in_the_lake_and_on_every_page(
    make_fleet: Callable[..., FleetSettings], small_corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet = make_fleet({name: [small_corpus / name] for name in NAMES})
    file = tmp_path / "fleet.yaml"
    written = yaml.safe_load(file.read_text())
    written["clusters"][1]["labels"] = {"owner": "payments", "environment": "production", "contact": "#kafka-eu"}
    file.write_text(yaml.safe_dump(written))
    lake = DeltaLake(fleet.lake)

    def run_and_count() -> int:
        assert run_command(["run", str(file), "--engine", "local"]) == 0
        return int(lake.query("SELECT count(*) AS n FROM clusters", CLUSTERS.name)["n"][0].as_py())

    assert run_and_count() == len(NAMES)
    assert run_and_count() == len(NAMES), "nothing changed"
    written["clusters"][1]["labels"]["owner"] = "logistics"
    file.write_text(yaml.safe_dump(written))
    assert run_and_count() == len(NAMES) + 1, "without anything new in the logs"
    known = {row["cluster_name"]: row for row in known_clusters(lake).values()}
    assert set(known) == set(NAMES)
    assert known[NAMES[1]]["owner"] == "logistics"
    for name in LABELLED:
        rows = lake.query(labelled_sql(name, str), name, CLUSTERS.name)
        assert rows.num_rows == lake.query(f"SELECT count(*) AS n FROM {name}", name)["n"][0].as_py(), name  # noqa: S608
        assert set(GOLD[name].column_names) < set(rows.column_names)
        for row in rows.to_pylist():
            assert row["cluster_id"] == known[row["cluster_name"]]["cluster_id"], name
            assert row["owner"] == ("logistics" if row["cluster_name"] == NAMES[1] else None)
    site = tmp_path / "site"
    assert run_command(["report", fleet.lake, "--out", str(site)]) == 0
    page = (site / "index.html").read_text()
    assert all(label in page for label in ("logistics", "production", "#kafka-eu"))
    of_cluster = next(page for page in site.rglob("*.html") if f"<b>{NAMES[1]}</b>" in page.read_text()).read_text()
    assert all(label in of_cluster for label in ("logistics", "#kafka-eu"))
    figures = (site / "metrics.prom").read_text()
    assert 'owner="logistics",environment="production",contact="#kafka-eu"} 1' in figures
    assert set(re.findall(r'cluster_expected\{cluster="(.*?)"\} 1', figures)) == set(NAMES)
    capsys.readouterr()
