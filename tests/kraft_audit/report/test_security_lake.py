"""Findings laid out for a security lake: every event once, in the folder of its day, the same bytes again."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from py_ocsf_models.events.findings.compliance_finding import ComplianceFinding

from kraft_audit.findings.ocsf import OCSF_SCHEMA, ocsf_events, without_nulls
from kraft_audit.report.report_files import write_security_lake
from kraft_audit.report.report_source import ClusterInput
from kraft_codec.errors import ChoiceError
from tests.builders.report_sources import GivenSource


def _hashes(folder: Path) -> dict[str, str]:
    files = (file for file in folder.rglob("*") if file.is_file())
    return {str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def test_every_event_lies_in_the_folder_of_its_day(last_replica: ClusterInput, tmp_path: Path) -> None:
    source = GivenSource([last_replica])
    written = write_security_lake(source, tmp_path / "a", region="eu-west-1", account="123456789012")
    end_ms = last_replica.history.end_ms
    wanted = [{**row, "seen_ms": end_ms} for row in last_replica.findings if row["status"] != "clear"]
    assert written.events == len(wanted) > 0
    found = []
    for file in (tmp_path / "a").rglob("*.parquet"):
        region, account, day = (part.split("=")[1] for part in file.relative_to(tmp_path / "a").parts[:3])
        assert (region, account) == ("eu-west-1", "123456789012")
        rows = pq.ParquetFile(file).read()
        assert rows.schema == OCSF_SCHEMA
        times = rows["time"].to_pylist()
        assert times == sorted(times)
        assert {datetime.fromtimestamp(time / 1000, UTC).strftime("%Y%m%d") for time in times} == {day}
        found += rows.to_pylist()
    assert found == ocsf_events(wanted, "0")
    for event in found:
        ComplianceFinding.model_validate(without_nulls(event))
    layout = ds.dataset(tmp_path / "a", partitioning="hive")
    assert layout.count_rows() == written.events
    assert {"region", "accountId", "eventDay"} < set(layout.schema.names)
    write_security_lake(source, tmp_path / "b", region="eu-west-1", account="123456789012")
    assert _hashes(tmp_path / "a") == _hashes(tmp_path / "b")


def test_what_is_there_stays_as_it_is(last_replica: ClusterInput, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("x")
    with pytest.raises(ChoiceError, match="expected a new or empty folder"):
        write_security_lake(GivenSource([last_replica]), tmp_path / "out")
    with pytest.raises(ChoiceError, match="--region"):
        write_security_lake(GivenSource([last_replica]), tmp_path / "new", region="../..")
    assert [file.name for file in tmp_path.rglob("*")] == ["out", "mine"]
