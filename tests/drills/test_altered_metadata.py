"""A broker whose copy of the metadata log was altered fetches it anew, as the advice says: its partitions stay."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.builders.commands import Command
from tests.builders.live_log import whole_batches
from tests.drills.drill import Drill
from tests.drills.losing_cluster import LosingCluster
from tests.drills.real_cluster import wait_for
from tests.drills.releases import KafkaRelease
from tests.witness.altered_disks import changed

pytestmark = [pytest.mark.kafka, pytest.mark.drill]
LOG = "__cluster_metadata-0/00000000000000000000.log"
A, B = 101, 102


def batches(disk: Path) -> list[bytes]:
    return [bytes(batch.data) for batch in whole_batches((disk / LOG).read_bytes())]


def test_an_altered_broker_fetches_the_log_anew(
    kafka_releases: Callable[[str], KafkaRelease], tmp_path: Path, kraft_audit: Command
) -> None:
    drill = Drill("altered-broker", "4.3.1", voters=1, brokers=3, elr=True)
    pay = LosingCluster(drill, tmp_path, kafka_releases(drill.release))
    try:
        pay.boot()
        pay.create(A, B, min_isr=1)
        pay.send(100)
        pay.stop(A)
        disk = pay.cluster.nodes / f"broker-{A}"
        held = batches(disk)
        held[len(held) // 2] = changed(held[len(held) // 2], random.Random(3))  # noqa: S311
        (disk / LOG).write_bytes(b"".join(held))
        said = " ".join(kraft_audit("check", pay.capture("altered")).out.split())
        assert f"Stop node {A}, move only its __cluster_metadata-0 away, and start it" in said
        shutil.move(disk / "__cluster_metadata-0", tmp_path / "kept")
        pay.start(A)
        pay.wait(isr={A, B})
        pay.send(10)
        wait_for("the log", lambda: len(batches(disk)) >= len(held))
        assert pay.lost() == []
        after = pay.capture("after")
        mine, theirs = batches(after / f"broker-{A}"), batches(next(after.glob("controller-*")))
        assert mine == theirs[: len(mine)]
        assert "KQ022" not in kraft_audit("check", after, "--findings").out
    finally:
        pay.cluster.kill_all()
