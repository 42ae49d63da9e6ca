"""The textfile: valid by the specification, and with the figures that Kafka's own tools printed at the same moment."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kraft_audit.report.openmetrics import METRIC_FAMILIES, METRIC_PREFIX, Metrics
from kraft_audit.report.report_files import write_file
from kraft_audit.report.report_source import ClusterInput
from kraft_audit.tables.gold import JUDGED_FINDINGS
from kraft_codec.errors import InputError
from tests.builders.openmetrics_text import MetricFamily, parse_openmetrics
from tests.builders.report_sources import GivenSource, harmful


def value(families: dict[str, MetricFamily], name: str, **labels: str) -> float:
    (found,) = [
        number
        for text, number in families[METRIC_PREFIX + name].samples.items()
        if all(f'{key}="{wanted}"' in text for key, wanted in labels.items())
    ]
    return found


def metric_families(*given: ClusterInput) -> dict[str, MetricFamily]:
    metrics = Metrics(GivenSource([]).as_of())
    for cluster in given:
        metrics.add(cluster)
    return parse_openmetrics("".join(metrics.lines()))


def test_every_family_is_there_with_its_help(last_replica: ClusterInput) -> None:
    families = metric_families(last_replica)
    assert families.keys() == {METRIC_PREFIX + name for name in METRIC_FAMILIES}
    assert all(family.type == "gauge" for family in families.values())


def test_harm_in_labels_stays_a_label(last_replica: ClusterInput, reverted_change: ClusterInput) -> None:
    families = metric_families(harmful(last_replica), harmful(reverted_change))
    assert families.keys() == {METRIC_PREFIX + name for name in METRIC_FAMILIES}


def test_an_unknown_cluster_has_findings_only() -> None:
    from kraft_audit.rules.cluster_history import ClusterHistory

    families = metric_families(ClusterInput(ClusterHistory("AAAAAAAAAAAAAAAAAAAAAA", {}), []))
    assert [name for name, family in families.items() if family.samples] == [
        "kraft_audit_build_info",
        "kraft_audit_report_timestamp_seconds",
    ]


def test_figures_are_those_of_kafkas_tools(last_replica: ClusterInput, small_corpus: Path) -> None:
    """kafka-topics --describe and kafka-metadata-quorum describe, run on that cluster when it was captured."""
    oracle = small_corpus / "elr" / "06-kill-13-last-replica" / "oracle"
    partitions, minimum = [], 1
    for line in (oracle / "topics.after.txt").read_text().splitlines():
        if line.startswith("Topic:"):
            configured = re.search(r"min\.insync\.replicas=(\d+)", line)
            minimum = int(configured[1]) if configured else 1
            continue
        cells = dict(
            cell.split(": ", 1) if ": " in cell else (cell.rstrip(": "), "") for cell in line.strip().split("\t")
        )
        lists = {
            name: [int(n) for n in cells.get(name, "").split(",") if n.strip()] for name in ("Replicas", "Isr", "Elr")
        }
        partitions.append((cells["Leader"], min(minimum, len(lists["Replicas"])), lists))
    families = metric_families(last_replica)
    assert value(families, "global_partition_count") == len(partitions) > 0
    assert value(families, "offline_partition_count") == sum(leader == "none" for leader, _, _ in partitions) > 0
    assert value(families, "global_under_min_isr_partition_count") == sum(
        len(lists["Isr"]) < wanted for _, wanted, lists in partitions
    )
    assert value(families, "last_replica_partition_count") == sum(
        len({*lists["Isr"], *lists["Elr"]}) == 1 < len(lists["Replicas"]) for _, _, lists in partitions
    )
    for size in (1, 2):
        counted = sum(len(lists["Isr"]) + len(lists["Elr"]) == size for _, _, lists in partitions)
        assert value(families, "partitions_by_electable_leaders", electable_leaders=str(size)) == counted
    status = dict(
        line.split(":", 1) for line in (oracle / "quorum-status.after.txt").read_text().splitlines() if ":" in line
    )
    assert value(families, "current_leader") == int(status["LeaderId"])
    assert value(families, "current_epoch") == int(status["LeaderEpoch"])
    assert (
        value(families, "high_watermark_low") == value(families, "high_watermark_high") == int(status["HighWatermark"])
    )
    assert value(families, "number_of_voters") == status["CurrentVoters"].count('"id"')


def test_open_findings_are_counted(last_replica: ClusterInput) -> None:
    families = metric_families(last_replica)
    raised = [f for f in last_replica.findings if f["status"] == "raised" and not f["is_over"]]
    assert sum(families["kraft_audit_findings_open"].samples.values()) == len(raised)
    assert value(families, "findings_open", rule="KP001") == sum(f["rule"] == "KP001" for f in raised) > 0


@pytest.mark.parametrize("format_", ["csv", "parquet", "openmetrics"])
def test_a_file_appears_whole_or_not_at_all(last_replica: ClusterInput, tmp_path: Path, format_: str) -> None:
    class Broken(GivenSource):
        def clusters(self):  # type: ignore[no-untyped-def]
            yield last_replica
            raise InputError("log", "gone")

    out = tmp_path / "out"
    with pytest.raises(InputError):
        write_file(Broken([]), format_, out)
    assert not list(tmp_path.iterdir())
    assert write_file(GivenSource([last_replica]), format_, out) == 1
    assert [file.name for file in tmp_path.iterdir()] == ["out"]


def test_parquet_has_the_columns_of_the_table(last_replica: ClusterInput, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    write_file(GivenSource([last_replica]), "parquet", tmp_path / "findings.parquet")
    table = pq.read_table(tmp_path / "findings.parquet", use_threads=False)
    assert table.schema.equals(JUDGED_FINDINGS.schema)
    assert table["finding_id"].to_pylist() == [finding["finding_id"] for finding in last_replica.findings]
