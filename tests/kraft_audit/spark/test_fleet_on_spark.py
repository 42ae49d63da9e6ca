"""What the notebook and the page on Spark show is run on a standalone cluster: workers read the logs."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import kraft_audit
from kraft_codec.storage.path_patterns import several_paths
from tests.builders.documented import examples

pytestmark = [pytest.mark.ci, pytest.mark.timeout(600)]

SESSION = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master(sys.argv[1]).config("spark.executor.memory", "600m")
spark = spark.config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1").getOrCreate()
"""


def test_the_notebook_counts_what_the_library_reads(
    spark_master: str, samples: Path, project_root: Path, tmp_path: Path
) -> None:
    pytest.importorskip("nbclient")
    pytest.importorskip("vl_convert")
    from scripts.run_notebook import execute

    paths = {"PATH": f"{samples}/elr-*.tgz", "OTHER_PATH": str(samples / "torn-write.tgz")}
    assert execute(project_root / "notebooks" / "fleet_on_spark.py", tmp_path, {**paths, "MASTER": spark_master})
    page = (tmp_path / "fleet_on_spark.html").read_text()
    records, rules = 0, Counter[str]()
    with kraft_audit.open(several_paths(list(paths.values()))) as clusters:
        for cluster in clusters:
            records += cluster.table("records").num_rows
            rules.update(
                finding["rule"] for finding in cluster.table("findings").to_pylist() if finding["state"] == "open"
            )
        assert f"<strong>{records:,} records</strong> in {len(clusters.plans)} clusters" in page
    assert page.index('<img alt="A drawing') < page.index("<table"), "a picture first"
    assert "<script" not in page
    assert rules
    for rule, count in rules.items():
        (row,) = (row for row in page.split("<tr>") if f"<td>{rule}</td>" in row)
        assert f"<td>{count}</td>" in row


def test_the_examples_of_the_page_print_what_it_shows(
    spark_master: str, spark_environment: dict[str, str], project_root: Path, tmp_path: Path
) -> None:
    """With absolute paths, as workers run in other folders."""
    page = (project_root / "docs" / "pipeline.md").read_text()
    found = [each for each in examples(page) if each.language == "python" and "spark.read" in each.code]
    assert found
    for example in found:
        code = SESSION + example.code.replace("samples/", f"{project_root}/samples/")
        done = subprocess.run(
            [sys.executable, "-c", code, spark_master], cwd=tmp_path, env=spark_environment,
            capture_output=True, text=True, check=False, timeout=200,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        assert tuple(done.stdout.splitlines()) == example.output
