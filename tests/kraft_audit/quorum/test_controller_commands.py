"""Kafka's commands as advice prints them."""

from __future__ import annotations

import shlex

import pytest

from kraft_audit.capture.plan import history_id
from kraft_audit.rules.columns.kafka_commands import add_controller, format_disk, remove_controller

pytestmark = pytest.mark.unit
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"


@pytest.mark.parametrize("cluster_id", [CLUSTER_ID, "test cluster", "it's"])
@pytest.mark.parametrize("joins", [False, True])
def test_a_disk_is_formatted_with_the_id_of_its_cluster(cluster_id: str, joins: bool) -> None:
    """Never with the id of a history, which Kafka would refuse beside the other nodes."""
    history = history_id(cluster_id, ["batch 0-1-2-3-4"])
    assert history != cluster_id
    words = shlex.split(format_disk(history, joins=joins))
    assert words[words.index("--cluster-id") + 1] == cluster_id
    assert ("--no-initial-controllers" in words) == joins


def test_a_voter_is_named_by_id_and_directory() -> None:
    server = "--bootstrap-controller 10.0.0.1:9093"
    words = shlex.split(remove_controller(server, 3, "AAAAAAAAAAAAAAAAAAAAAw"))
    assert words[:4] == ["kafka-metadata-quorum", "--bootstrap-controller", "10.0.0.1:9093", "remove-controller"]
    assert words[4:] == ["--controller-id", "3", "--controller-directory-id", "AAAAAAAAAAAAAAAAAAAAAw"]
    assert shlex.split(add_controller(server))[-1] == "add-controller"
