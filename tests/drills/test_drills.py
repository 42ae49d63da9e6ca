"""Real Kafka loses the majority of its controllers, and comes back by what `rescue` wrote and printed.

`make drills` runs all and writes docs/drills.md; CI runs the quickest. Needs Java and Kafka's jars, which Maven fetches
by their coordinates.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.builders.commands import Command
from tests.drills.drill import Drill
from tests.drills.drill_table import DRILLS
from tests.drills.real_cluster import RealCluster
from tests.drills.releases import KafkaRelease
from tests.drills.run_drill import run_drill

pytestmark = [pytest.mark.kafka, pytest.mark.drill]


@pytest.mark.parametrize(
    "drill", [pytest.param(drill, marks=[pytest.mark.ci] * drill.ci, id=drill.name) for drill in DRILLS]
)
def test_a_drill(
    drill: Drill, kafka_releases: Callable[[str], KafkaRelease], tmp_path: Path, kraft_audit: Command
) -> None:
    release = kafka_releases(drill.release)
    cluster = RealCluster(drill, tmp_path, release.classpath, release.tools, release.archive)
    try:
        run_drill(cluster, kraft_audit)
    finally:
        cluster.kill_all()
