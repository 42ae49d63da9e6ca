"""What a picture says of logs that parted, disks that were emptied and times without a commit.

Witnesses are the engine, which knows what happened, and the comparison of disks that `quorum --diverge` makes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import kraft_audit
from kraft_audit.cluster import Cluster
from kraft_audit.picture.drawing import WIDTHS, draw
from kraft_audit.picture.happened import BandKind, Lane, MarkKind, Picture, SeriesKind
from kraft_audit.quorum.divergence import divergences
from kraft_audit.rules.columns.quorum_standing import quorum_standing
from kraft_audit.text.readable import nouns
from kraft_engine import simulate
from tests.builders.pictures import drawn_picture, only_cluster, parsed_svg

SVG = "{http://www.w3.org/2000/svg}"
PARTED = [
    "divergence",
    *("divergence/11-dead-node-diverged", "divergence/20-uncommitted-suffix-live", "divergence/99-stopped"),
    *("uncommitted-voter-change", "uncommitted-voter-change/10-add-voter-uncommitted", "six", "phantom"),
    *("dynamic-quorum", "static-to-dynamic-upgrade", "torn-write", "jbod"),
]
STORIES = (
    *("two-leaders-one-epoch", "wiped-voter-before-the-loss", "three-of-five-wiped", "controllers-emptied"),
    *("unclean-election", "loss-holders-down"),
)


def _lane(picture: Picture, name: str) -> Lane:
    (lane,) = (lane for lane in picture.controllers if lane.name == name)
    return lane


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Cluster, list[dict[str, Any]]]]:
    """By story what was captured, and what the engine says of it."""
    stories = {}
    for story in STORIES:
        folder = tmp_path_factory.mktemp(story)
        simulate(story, 1, folder)
        truth = [json.loads(line) for line in (folder / "truth.jsonl").read_text().splitlines()]
        stories[story] = (only_cluster(folder), truth)
    return stories


@pytest.mark.parametrize("path", PARTED)
def test_branches_are_those_at_which_disks_differ(path: str, captured_logs: Path) -> None:
    cluster = only_cluster(captured_logs / path)
    parted = {
        (branch.offset, branch.to_offset)
        for divergence in divergences(cluster.survey, cluster.plan)
        for branch in divergence.branches
        if not branch.is_canonical
    }
    assert {(branch.from_offset, branch.to_offset) for branch in drawn_picture(cluster).branches} == parted


def test_a_suffix_is_cut_once_a_later_capture_lacks_it(captured_logs: Path) -> None:
    """Node 2 appended offsets 27 to 35 alone, and truncated them when it came back."""
    picture = drawn_picture(only_cluster(captured_logs / "divergence" / "11-dead-node-diverged"))
    (branch,) = picture.branches
    assert (branch.from_offset, branch.to_offset, branch.standing, branch.alarms) == (27, 36, "on node 2", True)
    assert MarkKind.CUT not in {mark.kind for mark in _lane(picture, "2").marks}
    picture = drawn_picture(only_cluster(captured_logs / "divergence"))
    assert [(branch.standing, branch.alarms) for branch in picture.branches] == [("cut off", False)] * 2
    for name in ("1", "2"):
        lane = _lane(picture, name)
        (cut,) = (mark for mark in lane.marks if mark.kind is MarkKind.CUT)
        (diverged,) = (band for band in lane.bands if band.kind is BandKind.DIVERGED)
        assert cut.at_ms == diverged.to_ms
        assert lane.standing == "end 132"


@pytest.mark.parametrize("story", STORIES)
def test_each_election_is_marked_on_the_lane_of_who_was_elected(
    story: str, told: dict[str, tuple[Cluster, list[dict[str, Any]]]]
) -> None:
    cluster, truth = told[story]
    elected = {(str(event["leader"]), event["time_ms"]) for event in truth if event["kind"] == "elected"}
    marked = {
        (lane.name, mark.at_ms)
        for lane in drawn_picture(cluster).controllers
        for mark in lane.marks
        if mark.kind is MarkKind.ELECTED
    }
    assert marked == elected


def test_two_leaders_of_one_epoch_have_a_branch_each(told: dict[str, tuple[Cluster, list[dict[str, Any]]]]) -> None:
    cluster, truth = told["two-leaders-one-epoch"]
    leaders = {event["leader"] for event in truth if event["kind"] == "elected" and event["epoch"] == 2}
    assert len(leaders) == 2
    picture = drawn_picture(cluster)
    assert not picture.log_end.is_canonical
    # Whom each disk says that it follows, in quorum-state.
    follow = {row["node_id"]: row["leader_id"] for row in cluster.history.rows("captures") if row["last_epoch"] == 2}
    assert {(branch.label, branch.standing) for branch in picture.branches} == {
        (
            f"offset 17, epoch 2, node {leader} led",
            "on " + nouns("node", sorted(node for node, followed in follow.items() if followed == leader)),
        )
        for leader in leaders
    }
    for width in WIDTHS:
        assert "no log is canonical" in "".join(parsed_svg(draw(picture, width, stands_alone=True)).itertext())


@pytest.mark.parametrize("story", ["wiped-voter-before-the-loss", "three-of-five-wiped", "controllers-emptied"])
def test_a_wiped_disk_is_no_calm_line(story: str, told: dict[str, tuple[Cluster, list[dict[str, Any]]]]) -> None:
    cluster, truth = told[story]
    wiped = {str(event["node"]) for event in truth if event["kind"] == "damage" and "wiped" in event["label"]}
    picture = drawn_picture(cluster)
    assert wiped
    for lane in picture.controllers:
        is_empty = MarkKind.EMPTY in {mark.kind for mark in lane.marks}
        assert is_empty == (lane.name in wiped) == (lane.standing == "empty")
        if is_empty:
            assert lane.alarms
            assert {band.kind for band in lane.bands} <= {BandKind.LEADER}


def test_a_replaced_disk_ends_where_it_was_captured_last(captured_logs: Path) -> None:
    before = only_cluster(captured_logs / "phantom" / "00-healthy").history
    (capture,) = (row for row in before.rows("captures") if row["node_id"] == 2)
    old, new = (lane for lane in drawn_picture(only_cluster(captured_logs / "phantom")).controllers if lane.name == "2")
    assert old.standing.endswith("replaced")
    assert old.ends_ms == capture["last_timestamp_ms"]
    assert max(band.to_ms for band in old.bands) == old.ends_ms
    assert min(band.from_ms for band in new.bands) > old.ends_ms, "the new disk was no voter before it was added"


@pytest.mark.parametrize("path", [*PARTED, "six/06-three-of-six-down", "split/03-stopped", "elr/29-stopped"])
def test_no_record_of_a_stall_is_committed(path: str, captured_logs: Path) -> None:
    for cluster in kraft_audit.open(str(captured_logs / path)):
        picture, standing = drawn_picture(cluster), quorum_standing(cluster.history)
        rows = cluster.history.rows("watermarks")
        newest = max(rows, key=lambda row: (row["capture_number"], row["read_to_ms"]))
        assert picture.log_end.committed == standing.committed_to == newest["low"]
        growth = picture.log_end
        for stall in picture.stalls:
            is_within = growth.times_ms > stall.from_ms
            if stall.to_ms is not None:
                is_within &= growth.times_ms < stall.to_ms
            assert not (growth.offsets[is_within] <= newest["low"]).any(), stall


def test_a_quorum_that_commits_nothing_may_have_a_leader(captured_logs: Path) -> None:
    picture = drawn_picture(only_cluster(captured_logs / "divergence"))
    assert [stall.text for stall in picture.stalls] == ["nothing committed for 12 s"] * 2
    leaders = [band for lane in picture.controllers for band in lane.bands if band.kind is BandKind.LEADER]
    for stall in picture.stalls:
        assert any(band.from_ms <= stall.from_ms < band.to_ms for band in leaders)


@pytest.mark.parametrize("path", ["divergence", "six/06-three-of-six-down", "phantom", "jbod", "elr/29-stopped"])
def test_what_is_drawn_has_a_title_and_the_legend_nothing_else(path: str, captured_logs: Path) -> None:
    kinds = {str(kind) for kinds in (BandKind, MarkKind, SeriesKind) for kind in kinds} | {"cap", "silent", "stall"}
    for width in WIDTHS:
        root = parsed_svg(draw(drawn_picture(only_cluster(captured_logs / path)), width, stands_alone=True))
        titled = {css for element in root.iter() if element.find(f"{SVG}title") is not None for css in _kinds(element)}
        untitled = [css for element in root for css in _kinds(element) if element.find(f"{SVG}title") is None]
        # Swatches of the legend have no title: each stands once, for something that is drawn.
        assert {*untitled} & kinds <= titled | {"in-service"}
        assert all(untitled.count(kind) <= 1 for kind in kinds - {"silent"})
        texts = [element.text or "" for element in root.iter(f"{SVG}title")]
        assert all(texts)


def test_dots_say_that_nothing_is_known_of_a_disk(
    captured_logs: Path, told: dict[str, tuple[Cluster, list[dict[str, Any]]]]
) -> None:
    """Of a broker that was unregistered the log tells everything."""
    silent = "nothing known</title>"
    assert "broker 15" in draw(drawn_picture(only_cluster(captured_logs / "elr" / "29-stopped")))
    assert f"broker 15: {silent}" not in draw(drawn_picture(only_cluster(captured_logs / "elr" / "29-stopped")))
    assert f"voter 1: {silent}" in draw(drawn_picture(told["wiped-voter-before-the-loss"][0]))


def _kinds(element: ElementTree.Element) -> set[str]:
    """The classes of an element and of what it holds."""
    return {part.get("class") or "" for part in element.iter()}
