"""The views in other engines' words: DuckDB over Arrow gives what DataFusion gives, and each text can be read back."""

from __future__ import annotations

import subprocess
from collections import Counter
from datetime import date, timedelta
from pathlib import Path
from typing import get_args

import duckdb
import pyarrow as pa
import pytest
import sqlglot
import yaml
from deltalake import DeltaTable

from kraft_audit.commands.register import OF_SPARK
from kraft_audit.lake.catalog import CATALOG_TABLES, in_dialect, statements, views
from kraft_audit.lake.catalog_dialects import DIALECTS, Catalog
from kraft_audit.lake.delta import DeltaLake
from kraft_audit.tables.gold import CLUSTER_HEALTH, FINDING_TREND, GOLD_VIEWS, SEVERITIES
from kraft_codec.errors import InputError
from tests.builders.commands import COMMAND, Command

DAY_MS = 86_400_000
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def lake(small_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> DeltaLake:
    """A lake of three clusters with its gold tables: one diverged, one has lost brokers, one is well."""
    folder = tmp_path_factory.mktemp("catalog")
    clusters = [{"name": name, "paths": [str(small_corpus / name)]} for name in ("divergence", "elr", "mini-3.9.2")]
    (folder / "fleet.yaml").write_text(yaml.safe_dump({"lake": str(folder / "lake"), "clusters": clusters}))
    subprocess.run([str(COMMAND), "run", str(folder / "fleet.yaml"), "--engine", "local"], check=True, timeout=280)
    return DeltaLake(str(folder / "lake"))


@pytest.fixture(scope="module")
def present(lake: DeltaLake) -> list[str]:
    return [name for name in CATALOG_TABLES if lake.exists(name)]


@pytest.fixture(scope="module")
def datafusion(lake: DeltaLake, present: list[str]) -> dict[str, pa.Table]:
    query = lake.queries(*present)
    return {name: query(sql) for name, sql in views(str, present).items()}


def test_duckdb_over_arrow_gives_the_rows_of_datafusion(
    lake: DeltaLake, present: list[str], datafusion: dict[str, pa.Table]
) -> None:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name in present:
            connection.register(f"lake_{name}", DeltaTable(lake.table_uri(name)).to_pyarrow_table())
        found = {
            name: connection.execute(in_dialect(sql, "duckdb")).to_arrow_table()
            for name, sql in views("lake_{}".format, present).items()
        }
    assert len(found) > 40
    for name, rows in found.items():
        assert rows.column_names == datafusion[name].column_names, name
        assert plain(rows) == plain(datafusion[name]), name
    assert sum(rows.num_rows > 0 for rows in found.values()) > 25


def plain(table: pa.Table) -> list[str]:
    """Rows as texts, times by their instant."""
    rows = table.to_pylist()
    return sorted(repr([str(value) if isinstance(value, date) else value for value in row.values()]) for row in rows)


def test_gold_views_keep_their_contracts(datafusion: dict[str, pa.Table]) -> None:
    for name, contract in GOLD_VIEWS.items():
        rows = datafusion[name]
        assert rows.column_names == list(contract.column_names)
        typed = rows.cast(contract.schema)  # refuses a null where the contract has none
        assert typed.num_rows
        assert typed.select(list(contract.key)).group_by(list(contract.key)).aggregate([]).num_rows == typed.num_rows


def test_cluster_health_counts_what_the_pages_count(lake: DeltaLake, datafusion: dict[str, pa.Table]) -> None:
    """What a stop in order explains is not open."""
    findings, incidents = datafusion["findings"].to_pylist(), datafusion["incidents"].to_pylist()
    assert any(row["state"] == "folded" and row["severity"] == "critical" for row in findings)
    healths = {row["cluster_id"]: row for row in datafusion[CLUSTER_HEALTH.name].to_pylist()}
    assert {row["cluster_name"] for row in healths.values()} == {"divergence", "elr", "mini-3.9.2"}
    for cluster_id, health in healths.items():
        of_cluster = [row for row in findings if row["cluster_id"] == cluster_id]
        is_open = Counter(row["severity"] for row in of_cluster if row["state"] == "open")
        assert [health[f"open_{severity}"] for severity in SEVERITIES] == [is_open[severity] for severity in SEVERITIES]
        lasting = [row for row in incidents if row["cluster_id"] == cluster_id and row["state"] == "open"]
        assert health["open_incidents"] == len(lasting)
        worst = min((SEVERITIES.index(row["severity"]) for row in lasting), default=None)
        assert health["worst_incident_severity"] == (None if worst is None else SEVERITIES[worst])
        assert health["not_proven_count"] == health["canonical_end_offset"] - health["low"]
    assert any(health["open_critical"] for health in healths.values())


def test_the_trend_adds_up_to_what_is_open(datafusion: dict[str, pa.Table]) -> None:
    """Beside a walk over the episodes, one by one."""
    episodes = [row for row in datafusion["finding_episodes"].to_pylist() if row["status"] == "raised"]
    found = {
        (row["cluster_id"], row["severity"], row["day"]): row for row in datafusion[FINDING_TREND.name].to_pylist()
    }
    assert found
    for (cluster_id, severity, day), row in found.items():
        end_ms = (day + timedelta(days=1) - date(1970, 1, 1)).days * DAY_MS
        mine = [each for each in episodes if (each["cluster_id"], each["severity"]) == (cluster_id, severity)]
        begun = [each for each in mine if each["first_seen_ms"] < end_ms]
        ended = [each for each in begun if each["closed_ms"] is not None and each["closed_ms"] < end_ms]
        assert row["open_at_end"] == len(begun) - len(ended)


def test_each_dialect_reads_its_own_statements() -> None:
    for catalog, dialect in DIALECTS.items():
        made = list(statements("s3://bucket/lake", catalog, "main.kraft", CATALOG_TABLES))
        kinds = Counter(each.kind for each in made)
        assert kinds == {"schema": 2, "table": len(CATALOG_TABLES), "view": kinds["view"]}
        for each in made:
            if each.kind == "view":
                assert sqlglot.parse_one(each.sql, read=dialect).sql(dialect) != ""
                assert "main.kraft_tables." in each.sql.replace('"', "")
        addresses = [each.sql for each in made if each.kind == "table"]
        assert all("s3://bucket/lake/" in sql for sql in addresses)


def test_trino_adds_days_to_a_date_by_a_function() -> None:
    (sql,) = (
        each.sql
        for each in statements("s3://bucket/lake", "trino", "kraft", CATALOG_TABLES)
        if (each.kind, each.name) == ("view", "incidents_by_day")
    )
    assert "DATE_ADD(" in sql
    assert "AS DATE) +" not in sql


@pytest.mark.parametrize("schema", ["", "a.b.c", "x; DROP TABLE y", "kraft-1", "ä"])
def test_a_schema_that_is_no_name_is_refused(schema: str) -> None:
    with pytest.raises(InputError, match="expected a schema"):
        list(statements("s3://bucket/lake", "hive", schema, CATALOG_TABLES))


def test_a_quote_in_the_address_is_refused() -> None:
    with pytest.raises(InputError, match="a quote"):
        list(statements("s3://bucket/it's", "hive", "kraft", CATALOG_TABLES))


def test_a_catalog_elsewhere_reaches_no_path_of_this_machine(lake: DeltaLake, kraft_audit: Command) -> None:
    ended = kraft_audit("lake", "register", lake.uri, "--catalog", "unity")
    assert ended.code == 3
    assert "expected an address" in ended.err


def test_the_command_writes_a_file_for_each_view(
    lake: DeltaLake, present: list[str], kraft_audit: Command, tmp_path: Path
) -> None:
    words = ("lake", "register", lake.uri, "--catalog", "duckdb", "--out", tmp_path / "catalog")
    ended = kraft_audit(*words, "--output", "json")
    assert ended.code == 0, ended.err
    names = {path.stem for path in (tmp_path / "catalog" / "views").iterdir()}
    assert names == set(views(str, present))
    assert (tmp_path / "catalog" / "tables.sql").read_text().count("delta_scan(") == len(present)
    again = kraft_audit(*words)
    assert again.code == 2


def test_catalogs_of_the_command_are_those_of_the_lake(lake: DeltaLake, kraft_audit: Command) -> None:
    assert get_args(Catalog) == tuple(DIALECTS)
    assert set(OF_SPARK) == {name for name, dialect in DIALECTS.items() if dialect == "spark"}
    refused = kraft_audit("lake", "register", lake.uri, "--catalog", "trino", "--execute")
    assert refused.code == 2
    assert "Spark cannot write to trino" in refused.err
