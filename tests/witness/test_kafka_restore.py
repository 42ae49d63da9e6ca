"""A restore kit applied to an empty real Kafka gives the state that it was made of, but for ids and blanks.

The script runs in bash as it was printed; Kafka's own tools get the arguments that bash passes on. Needs Java and
Kafka's jars: KRAFT_AUDIT_KAFKA_CLASSPATH, or Maven to fetch them by coordinates.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import kraft_audit
from kraft_audit.commands.cli import run_command
from kraft_audit.commands.diff import differences
from kraft_audit.commands.state import StatePart
from kraft_audit.replay.cluster_state import ClusterState
from tests.builders.one_kafka import one_kafka
from tests.builders.printed_scripts import calls_of
from tests.builders.restorable_logs import hostile_log, written

pytestmark = [pytest.mark.kafka, pytest.mark.ci]

SECRETS = ("salt", "stored_key", "server_key")
MADE_BY_THE_CLUSTER = ("directories", "leader_epoch", "partition_epoch")
"""Of a partition: which log directory took it, and how often it changed."""
COMPARED = (StatePart.TOPICS, StatePart.PARTITIONS, StatePart.CONFIGS, StatePart.SECURITY)


def state(path: Path) -> ClusterState:
    with kraft_audit.open(str(path)) as clusters:
        (cluster,) = clusters
        return cluster.state()


def without_ids(found: ClusterState) -> ClusterState:
    """The state with names in the place of ids, and without what a blank stands for."""
    tables = dict(found.tables)
    for table in ("topic_changes", "partition_changes"):
        rows = [{**row, "topic_id": row["topic"]} for row in found.rows(table)]
        for row in rows if table == "partition_changes" else ():
            row |= dict.fromkeys(MADE_BY_THE_CLUSTER, 0) | {"directories": []}
        tables[table] = pa.Table.from_pylist(rows, found.tables[table].schema)
    security = [row for row in found.rows("security_changes") if row["kind"] != "PRODUCER_IDS"]
    for row in security:
        fields = {name: value for name, value in json.loads(row["state"]).items() if name not in ("id", *SECRETS)}
        if row["kind"] == "CLIENT_QUOTA":
            fields["entity"] = sorted(fields["entity"], key=lambda part: part["entity_type"])
        row["state"] = json.dumps(fields, sort_keys=True)
        row["subject"] = row["state"] if row["kind"] == "ACL" else row["subject"]
    tables["security_changes"] = pa.Table.from_pylist(security, found.tables["security_changes"].schema)
    configs = [
        {**row, "value": "" if "password" in row["name"] else row["value"]} for row in found.rows("config_changes")
    ]
    tables["config_changes"] = pa.Table.from_pylist(configs, found.tables["config_changes"].schema)
    return replace(found, tables=tables)


def test_a_kit_gives_an_empty_cluster_the_state_that_it_was_made_of(
    kafka_classpath: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = written(hostile_log(136), tmp_path / "source")
    assert run_command(["restore-kit", str(source), "-o", "json", "--out", str(tmp_path / "kit")]) == 0
    kit = json.loads(capsys.readouterr().out)
    assert kit["object_count"] >= 1_000
    script = (tmp_path / "kit" / "restore.sh").read_text()
    blanks = {blank["name"]: f"pass, word={blank['name']}" for blank in kit["blanks"]}
    with one_kafka(tmp_path / "restored", tmp_path, kafka_classpath) as kafka:
        calls = calls_of(script, tmp_path / "bash", **{**blanks, "BOOTSTRAP_SERVER": kafka.server})
        assert len(calls) == len(kit["commands"])
        codes = kafka.run(calls)
        assert set(codes) == {0}, (calls[next(n for n, code in enumerate(codes) if code)], kafka.tools_output)
        again = list({step["kind"]: call for step, call in zip(kit["commands"], calls, strict=True)}.values())
        assert len(again) > 6
        assert set(kafka.run(again)) == {0}, "a script that failed half-way is run again"
    before, after = without_ids(state(source)), without_ids(state(tmp_path / "restored"))
    assert [row for part in COMPARED for row in differences(part, before, after)] == []
