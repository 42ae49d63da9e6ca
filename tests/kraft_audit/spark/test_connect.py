"""Spark Connect: the data source by a client that has no JVM, on the server that pyspark brings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from kraft_audit.spark.session import use_java
from kraft_audit.spark.source import TableReader

pytestmark = [pytest.mark.ci, pytest.mark.timeout(400)]


def test_the_data_source_over_spark_connect(small_corpus: Path, tmp_path: Path, project_root: Path) -> None:
    pytest.importorskip("grpc")
    path = str(small_corpus / "divergence")
    reader = TableReader({"path": path, "table": "records"})
    rows = [row for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()]
    environment = os.environ | {
        "JAVA_HOME": str(use_java()), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(project_root),
    }  # fmt: skip
    client = [sys.executable, Path(__file__).with_name("connect_client.py"), path]
    ran = subprocess.run(client, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr[-4000:]
    document = json.loads(ran.stdout.splitlines()[-1])
    assert document["client"] == "pyspark.sql.connect.session"
    assert document["counted"] == Counter(row["record_type"] for row in rows)
    assert document["pushed"] == sum(row["record_type"] == "PARTITION_RECORD" and row["offset"] >= 10 for row in rows)
