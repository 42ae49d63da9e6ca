"""Archives that are read together are what each would be by itself."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.settings import load_fleet
from kraft_audit.lake.staging import small_archives
from kraft_audit.lake.staging.archive_reading import LakeArchive, closed_plans
from kraft_audit.lake.staging.small_archives import SmallArchives
from tests.builders.captures import SAMPLES
from tests.builders.without_spark import run

pytestmark = pytest.mark.slow  # a lake is made first

KEYS = ("from_offset", "leader_epoch", "first_crc")


@pytest.mark.parametrize("alone_count", [0, 1, 4])
def test_what_is_read_together_is_what_is_read_alone(
    alone_count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("elr-06-kill-13-last-replica", "divergence", "torn-write", "mini-3.9.2")
    clusters = [{"name": name, "paths": [str(SAMPLES / f"{name}.tgz")]} for name in names]
    (tmp_path / "fleet.yaml").write_text(yaml.safe_dump({"lake": "lake", "clusters": clusters}))
    run(load_fleet(tmp_path / "fleet.yaml", environment={}))
    lake = DeltaLake(str(tmp_path / "lake"))
    closed = closed_plans(lake)
    sizes = lake.query("SELECT cluster_id, sum(size_bytes) AS n FROM archive GROUP BY cluster_id ORDER BY n", "archive")
    ids = sizes["cluster_id"].to_pylist()
    bounds = {0: 1 << 24, 1: sizes["n"][-1].as_py() - 1, len(ids): 0}
    monkeypatch.setattr(small_archives, "TOGETHER_BYTES", bounds[alone_count])
    archives = SmallArchives(lake, ids, closed)
    asked = 0
    for cluster_id in ids:
        ours, alone = archives.of(cluster_id), LakeArchive.of(lake, cluster_id, closed=closed)
        asked += isinstance(ours, LakeArchive)
        for name in ("captures", "holdings", "runs"):
            rows, expected = getattr(ours, name)(), getattr(alone, name)()
            assert rows.schema == expected.schema
            assert sorted(rows.to_pylist(), key=str) == sorted(expected.to_pylist(), key=str)
        for run_row in alone.runs().to_pylist():
            span = (run_row["source"], run_row["from_offset"], run_row["from_offset"] + 1)
            contents = [each.contents(*span).sort_by([(key, "ascending") for key in KEYS]) for each in (ours, alone)]
            assert contents[0] == contents[1]
            assert contents[0].num_rows > 0
    assert asked == alone_count
    assert archives.of("no such cluster").captures().num_rows == 0
