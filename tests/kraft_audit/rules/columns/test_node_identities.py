"""Whose disk it is, where the log has its directory id under two node ids."""

from __future__ import annotations

import pytest

from tests.builders.histories import HistoryBuilder, directory


def says(build: HistoryBuilder) -> dict[str, str]:
    return {finding.subject: finding.summary for finding in build.raised("KV018")}


def test_a_renumbered_broker_that_registered_again_is_named_with_both_places(build: HistoryBuilder) -> None:
    build.three_nodes().broker(13, at=10, log_dirs=[directory(13)], fenced=True)
    build.broker(14, at=30, log_dirs=[directory(13)]).capture(14, 40, directory_id=directory(13))
    assert says(build) == {
        "node 14": f"the directory id {directory(13)} of its disk is that of node 13 in the log "
        "(broker registration at offset 10), and of node 14 itself (broker registration at offset 30)"
    }


def test_a_voter_that_registers_as_a_broker_under_another_id(build: HistoryBuilder) -> None:
    build.three_nodes().broker(5, at=30, log_dirs=[directory(3)]).capture(5, 40, directory_id=directory(3))
    assert "is that of node 3 in the log (voter set" in says(build)["node 5"]
    assert "and of node 5 itself (broker registration at offset 30)" in says(build)["node 5"]


@pytest.mark.parametrize("is_unregistered", [True, False])
def test_once_the_old_id_is_unregistered_the_directory_is_the_new_ones(
    build: HistoryBuilder, is_unregistered: bool
) -> None:
    build.three_nodes().broker(13, at=10, log_dirs=[directory(13)])
    build.broker(13, at=20, log_dirs=[directory(13)], exists=not is_unregistered)
    build.broker(14, at=30, log_dirs=[directory(13)]).capture(14, 40, directory_id=directory(13))
    assert bool(says(build)) is not is_unregistered


def test_a_node_in_both_roles_has_one_id(build: HistoryBuilder) -> None:
    build.three_nodes().broker(3, at=30, log_dirs=[directory(3)])
    assert says(build) == {}
