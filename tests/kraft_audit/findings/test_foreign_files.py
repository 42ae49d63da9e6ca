"""Files of another cluster, and a disk of another directory id: reported, and mixed with nothing."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path
from typing import Any

import pytest

from kraft_audit.capture.path_plans import plan_cluster
from kraft_codec.files.state_files import QuorumState
from kraft_codec.records.redaction import Redactor
from kraft_codec.storage.opener import open_storage
from kraft_codec.text.java_text import uuid_text
from tests.builders.readings import table_rows

OTHER_CLUSTER = uuid_text(b"another-cluster!")
NODES = (1, 2, 3)
FILE_THAT_NAMES_IT = {
    "meta.properties": "meta.properties",
    "quorum-state": "__cluster_metadata-0/quorum-state",
    "both": "meta.properties",
    "quorum-state alone": "__cluster_metadata-0/quorum-state",
}
CASES = [
    *itertools.product(FILE_THAT_NAMES_IT, NODES, (False,)),
    *itertools.product(list(FILE_THAT_NAMES_IT)[:3], NODES, (True,)),
]
assert len(CASES) >= 20


@pytest.mark.parametrize(("reported_by", "foreign", "shares_directory"), CASES)
def test_a_replica_of_another_cluster_is_reported_and_not_mixed(
    tmp_path: Path, reading: Any, node: Any, usual_log: Any, reported_by: str, foreign: int, shares_directory: bool
) -> None:
    """Whichever file says so, whichever node it claims to be, though it bear the directory id of one of the others."""
    others = [number for number in NODES if number != foreign]
    for number in others:
        node(tmp_path, number, usual_log.content)
    alone = reading.tables(planned(tmp_path))
    usual_log.topic("foreign")
    more: dict[str, Any] = {}
    if reported_by != "meta.properties":
        more["state"] = QuorumState(0, 1, 1, -1, cluster_id=OTHER_CLUSTER, current_voters=(1,))
    if reported_by in ("meta.properties", "both"):
        more["cluster_id"] = OTHER_CLUSTER
    elif reported_by == "quorum-state alone":
        more["cluster_id"] = None  # without a meta.properties
    if shares_directory:
        more["directory_id"] = uuid_text(b"d" * 15 + bytes([others[0]]))
    node(tmp_path, foreign, usual_log.content, **more)
    tables = reading.tables(planned(tmp_path))
    (damage,) = tables["decode_errors"]
    assert (damage["reason"], damage["file_name"]) == ("CLUSTER_MISMATCH", FILE_THAT_NAMES_IT[reported_by])
    assert OTHER_CLUSTER in damage["detail"]
    assert damage["node_id"] == (None if reported_by == "quorum-state alone" else foreign)
    assert [row for row in tables["captures"] if row["accepted"]] == alone["captures"]
    assert [row["node_id"] for row in tables["captures"] if not row["accepted"]] == [damage["node_id"]]
    for name in ("batches", "records"):
        assert tables[name] == alone[name]


def planned(path: Path) -> Any:
    return plan_cluster([str(path)], open_storage=open_storage, captured_at_ms=5, name="payments")


@pytest.mark.slow
@pytest.mark.parametrize("voter", NODES)
def test_a_disk_of_another_directory_id_is_no_voters(small_corpus: Path, tmp_path: Path, voter: int) -> None:
    """The voter set names voters by id and directory: a disk of the same id and another directory is none of them."""
    capture = tmp_path / "capture"
    shutil.copytree(small_corpus / "divergence" / "12-after-truncation", capture)
    assert phantoms(capture) == []
    properties = capture / f"node-{voter}" / "meta.properties"
    lines = properties.read_text().splitlines()
    properties.chmod(0o644)
    second = uuid_text(b"another-director")
    properties.write_text("\n".join(f"directory.id={second}" if "directory.id" in line else line for line in lines))
    (finding,) = phantoms(capture)
    assert f"node {voter}'s disk is {second}" in finding["summary"]


def phantoms(path: Path) -> list[dict[str, Any]]:
    plan = planned(path)
    rows = table_rows(plan, frozenset({"findings"}), open_storage=open_storage, redactor=Redactor(bytes(32)))
    found = [row for _, batch in rows for row in batch.to_pylist()]
    return [row for row in found if (row["rule"], row["status"]) == ("KV008", "raised")]
