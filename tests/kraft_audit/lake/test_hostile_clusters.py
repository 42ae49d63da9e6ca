"""Clusters with hostile bytes in their logs among many good ones: the others' rows are those of a run without them."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from kraft_audit.lake.settings import FleetSettings
from kraft_audit.tables import LAKE_TABLES
from kraft_audit.tables.bronze import PLANS
from kraft_codec.text.java_text import uuid_text
from tests.builders.lakes import written_at
from tests.builders.logs import Log, write_node
from tests.hostile.harms import HARMS

GOOD = int(os.environ.get("KRAFT_AUDIT_GOOD_CLUSTERS", "29"))
TOPICS = 20
LEFT_OUT = {"many_files", "zeros", "archive_bomb", "restless"}
"""Files beside the log, which planning meets, and a log that does not stand still: tested where one cluster is read."""
HOSTILE_TEXTS = ("'; DROP TABLE records; --", "../../../etc/passwd", "a\nb", "\x1b[2J", "=cmd()", "<script>", "\u202e")


def write_cluster(folder: Path, cluster_id: str, names: tuple[str, ...]) -> Path:
    log = Log()
    log.lead(1, epoch=1)
    for name in names:
        log.topic(name)
    return write_node(folder / "logs", 1, log.content, cluster_id=cluster_id)


def good_clusters(folder: Path, count: int) -> dict[str, list[Path | str]]:
    clusters: dict[str, list[Path | str]] = {}
    for number in range(count):
        names = tuple(f"topic-{number}-{index}" for index in range(TOPICS))
        write_cluster(folder / f"good-{number}", uuid_text(b"good" + number.to_bytes(12, "big")), names)
        clusters[f"good-{number}"] = [folder / f"good-{number}"]
    return clusters


def hostile_clusters(folder: Path) -> dict[str, list[Path | str]]:
    clusters: dict[str, list[Path | str]] = {}
    texts = tuple(f"hostile-{number}" for number in range(TOPICS))
    for number, (name, harm) in enumerate(HARMS.items()):
        if name not in LEFT_OUT:
            node = write_cluster(folder / name, uuid_text(b"evil" + number.to_bytes(12, "big")), texts)
            with harm(node) or contextlib.nullcontext():
                clusters[name] = [folder / name]
    write_cluster(folder / "names", "../../../evil/x=1", HOSTILE_TEXTS)
    return {**clusters, "names": [folder / "names"]}


@pytest.mark.ci
@pytest.mark.timeout(1200)
def test_hostile_logs_among_good_ones(
    tmp_path: Path, make_fleet: Callable[..., FleetSettings], without_spark: ModuleType,
    rows_of: Callable[..., list[str]],
) -> None:  # fmt: skip
    good, hostile = good_clusters(tmp_path / "good", GOOD), hostile_clusters(tmp_path / "hostile")
    written_at(tmp_path, 1_700_000_000)
    alone = make_fleet(good, lake="alone", file="alone.yaml")
    assert without_spark.run(alone).failed == {}
    beside = make_fleet({**dict(list(good.items())[: GOOD // 2]), **hostile, **good}, lake="beside")
    result = without_spark.run(beside)
    assert result.failed.keys() <= hostile.keys()
    assert result.clusters >= GOOD + len(hostile) // 2, "most hostile logs are read, not refused"
    theirs = rows_of(beside.lake, "decode_errors")
    assert {json.loads(row)["reason"] for row in theirs} >= {"BAD_CRC", "TORN_TAIL", "DECOMP_LIMIT", "BAD_RECORD"}
    for table in sorted(LAKE_TABLES.keys() - {PLANS.name}):
        expected = rows_of(alone.lake, table)
        ids = {json.loads(row)["cluster_id"] for row in expected}
        remaining = [row for row in rows_of(beside.lake, table) if json.loads(row)["cluster_id"] in ids]
        assert remaining == expected, table
    assert {path.name for path in tmp_path.iterdir()} >= {"alone", "beside"}
    assert not list(tmp_path.parent.rglob("evil")), "no id became a path"
