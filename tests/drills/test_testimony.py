"""Real quorums in situations that the metadata log alone does not show, and the advice followed to the letter.

Nothing may be lost by it. Where the answer is no and it is cheap, the drill does it all the same, on disks that it
puts back, and shows what is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.builders.commands import Command
from tests.drills.advised_operator import Operator
from tests.drills.real_cluster import RealCluster
from tests.drills.releases import KafkaRelease
from tests.drills.testimony_table import TESTIMONY_DRILLS, TestimonyDrill

PATIENT: Final = {
    "controller.quorum.fetch.timeout.ms": 4000,
    "controller.quorum.election.timeout.ms": 2000,
    "controller.quorum.request.timeout.ms": 4000,
    "broker.session.timeout.ms": 9000,
}
"""A busy machine elects nobody whom no story asked for."""
pytestmark = [pytest.mark.kafka, pytest.mark.drill]


@pytest.mark.parametrize(
    "drill", [pytest.param(drill, marks=[pytest.mark.ci] * drill.ci, id=drill.name) for drill in TESTIMONY_DRILLS]
)
def test_a_testimony(
    drill: TestimonyDrill, kafka_releases: Callable[[str], KafkaRelease], tmp_path: Path, kraft_audit: Command
) -> None:
    release = kafka_releases(drill.release)
    cluster = RealCluster(drill.cluster, tmp_path, release.classpath, release.tools, release.archive)
    for node in cluster.all_nodes:
        node.extra |= PATIENT
    operator = Operator(cluster, kraft_audit)
    try:
        cluster.boot()
        cluster.live()
        cluster.remember()
        drill.story(operator)
        operator.nothing_is_lost()
    finally:
        cluster.kill_all()
