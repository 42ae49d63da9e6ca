"""Which cluster a log without meta.properties belongs to: its first batch says so, where the bytes have its CRC."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kraft_audit.capture.path_plans import plan_path
from kraft_codec.records.batch import HEADER_BYTES
from kraft_codec.storage.opener import open_storage

SEGMENT = "__cluster_metadata-0/00000000000000000000.log"


@pytest.mark.parametrize(("flipped", "is_joined"), [(None, True), (HEADER_BYTES + 5, False)])
def test_a_damaged_batch_joins_nothing(
    small_corpus: Path, tmp_path: Path, flipped: int | None, is_joined: bool
) -> None:
    capture = shutil.copytree(next((small_corpus / "divergence").glob("*/node-3")).parent, tmp_path / "capture")
    node = capture / "node-3"
    (node / "meta.properties").unlink()
    (node / "__cluster_metadata-0" / "quorum-state").unlink(missing_ok=True)
    if flipped is not None:
        content = bytearray((node / SEGMENT).read_bytes())
        content[flipped] ^= 1
        (node / SEGMENT).write_bytes(content)
    plans = plan_path(str(capture), open_storage=open_storage, captured_at_ms=1)
    own = next(plan for plan in plans if any(replica.path == "node-3" for replica in plan.replicas))
    assert ({"node-1", "node-2"} <= {replica.path for replica in own.replicas}) is is_joined
