"""What a picture says is what the log says: lanes, counts of partitions and incidents of real captures."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import kraft_audit
from kraft_audit.cluster import Cluster
from kraft_audit.picture.drawing import WIDTHS, draw
from kraft_audit.picture.happened import Band, BandKind, Lane, MarkKind, Picture, Series, SeriesKind
from kraft_audit.picture.whole_picture import LANES_MAX, picture_of
from kraft_engine import simulate
from tests.builders.histories import T0, HistoryBuilder
from tests.builders.pictures import drawn_picture, only_cluster, parsed_svg

SVG = "{http://www.w3.org/2000/svg}"


def _lane(lanes: tuple[Lane, ...], name: str) -> Lane:
    (lane,) = (lane for lane in lanes if lane.name == name)
    return lane


def _bands(lane: Lane, kind: BandKind) -> list[Band]:
    return [band for band in lane.bands if band.kind is kind]


def test_a_quorum_without_a_majority(captured_logs: Path) -> None:
    """Three of six voters down, as an engineer drew it from the same capture."""
    picture = drawn_picture(only_cluster(captured_logs / "six" / "06-three-of-six-down"))
    assert [lane.name for lane in picture.controllers] == ["1", "2", "3", "4", "5", "6"]
    first, fifth = _lane(picture.controllers, "1"), _lane(picture.controllers, "5")
    (led_first,), (led_fifth,) = _bands(first, BandKind.LEADER), _bands(fifth, BandKind.LEADER)
    assert (led_first.label, led_fifth.label) == ("leader, epoch 1", "leader, epoch 3")
    assert led_fifth.from_ms - led_first.to_ms == 4588, "no leader for 4.6 s"
    assert (first.standing, first.end_label) == ("lacks 30 records", "log ends at 74")
    assert _lane(picture.controllers, "2").standing == "lacks 54 records"
    assert _lane(picture.controllers, "4").standing == "has 104–119"
    third = _lane(picture.controllers, "3")
    assert [mark.kind for mark in third.marks] == [MarkKind.REMOVED, MarkKind.ADDED]
    assert [band.kind for band in third.bands] == [BandKind.FOLLOWER, BandKind.OBSERVER, BandKind.FOLLOWER]
    assert [lane.standing for lane in picture.brokers] == ["in service", "in service"]
    assert {bracket.number: bracket.label for bracket in picture.brackets} == {
        1: "quorum stopped",
        2: "no leader 4.6 s",
    }
    assert picture.log_end.committed == 104
    assert picture.log_end.offsets[-1] == 120
    assert "none offline" in picture.sentence


def test_a_disk_that_parted_from_the_canonical_log(captured_logs: Path) -> None:
    picture = drawn_picture(only_cluster(captured_logs / "divergence" / "11-dead-node-diverged"))
    second = _lane(picture.controllers, "2")
    (diverged,) = _bands(second, BandKind.DIVERGED)
    assert (second.standing, second.alarms) == ("diverged at 27", True)
    assert diverged.to_ms == second.ends_ms
    assert not any(_bands(_lane(picture.controllers, name), BandKind.DIVERGED) for name in ("1", "3"))


def test_a_failed_log_dir_is_marked(captured_logs: Path) -> None:
    picture = drawn_picture(only_cluster(captured_logs / "jbod" / "02-dir-back"))
    kinds = [mark.kind for mark in _lane(picture.brokers, "12").marks]
    assert kinds == [MarkKind.LOG_DIR_FAILED, MarkKind.RESTARTED]
    assert _lane(picture.brokers, "11").marks == ()


@pytest.mark.slow
def test_two_disks_of_one_id_are_two_lanes_and_one_of_them_led(captured_logs: Path) -> None:
    """Voter 1 was removed and came back with a new disk: only the old disk led the first epoch."""
    picture = drawn_picture(only_cluster(captured_logs / "dynamic-quorum"))
    old, new = (lane for lane in picture.controllers if lane.name == "1")
    assert old.standing.endswith("replaced")
    assert _bands(old, BandKind.LEADER)[0].label == "leader, epoch 1"
    assert _bands(new, BandKind.LEADER) == []


@pytest.mark.parametrize("capture", ["09-13-back-unclean", "16-fast-bounce-13", "29-stopped"])
def test_partitions_are_counted_as_a_replay_by_hand_counts_them(captured_logs: Path, capture: str) -> None:
    cluster = only_cluster(captured_logs / "elr" / capture)
    picture = drawn_picture(cluster)
    by_kind = {series.kind: series for series in picture.series}
    moments = 0
    for at_ms, counts in _counted(cluster):
        for kind, count in counts.items():
            assert _at(by_kind[kind], at_ms) == count, (at_ms, kind)
        moments += 1
    assert moments > 20
    assert any(series.peak for series in picture.series)


@pytest.mark.parametrize("scenario", ["unclean-election", "loss-holders-down", "loss-last-known-leader"])
def test_losses_stand_where_records_were_lost(scenario: str, tmp_path: Path) -> None:
    """The engine knows what was lost and when its disk lost it, which is just after the election was written."""
    simulate(scenario, 1, tmp_path)
    truth = [json.loads(line) for line in (tmp_path / "truth.jsonl").read_text().splitlines()]
    (lost,) = [event for event in truth if event["kind"] == "data_lost"]
    (loss,) = drawn_picture(only_cluster(tmp_path)).losses
    assert loss.proven + loss.possible == 1
    assert 0 <= lost["time_ms"] - loss.at_ms < 20


def test_where_nothing_was_lost_no_lane_says_so(tmp_path: Path) -> None:
    simulate("preferred-leaders", 1, tmp_path)
    picture = drawn_picture(only_cluster(tmp_path))
    assert picture.losses == ()
    assert "Losses" not in draw(picture, WIDTHS[0])


def _counted(cluster: Cluster) -> Iterator[tuple[int, dict[SeriesKind, int]]]:
    """The counts after the last record of each time, by rows: a partition's last row holds."""
    rows = sorted(cluster.partitions().to_pylist(), key=lambda row: row["from_offset"])
    now: dict[tuple[str, int], dict[str, Any]] = {}
    for place, row in enumerate(rows):
        now[row["topic_id"], row["partition"]] = row
        if place + 1 == len(rows) or rows[place + 1]["timestamp_ms"] != row["timestamp_ms"]:
            there = [each for each in now.values() if each["exists"]]
            yield (
                row["timestamp_ms"],
                {
                    SeriesKind.AT_ONE_REPLICA: sum(
                        len(each["replicas"]) > 1 and len({*each["isr"], *each["elr"]}) == 1 for each in there
                    ),
                    SeriesKind.OFFLINE: sum(each["leader"] == -1 for each in there),
                    SeriesKind.BLOCKED: sum(len(each["isr"]) < each["effective_min_isr"] for each in there),
                },
            )


def _at(series: Series, at_ms: int) -> int:
    place = bisect_right(series.times_ms.tolist(), at_ms) - 1
    return 0 if place < 0 else int(series.counts[place])


@pytest.mark.slow
def test_every_capture_is_drawn_at_every_width(captured_logs: Path) -> None:
    drawn = 0
    for scenario in ("six", "divergence", "jbod", "phantom", "uncommitted-voter-change", "torn-write"):
        for path in sorted(each for each in (captured_logs / scenario).iterdir() if each.is_dir()):
            for cluster in kraft_audit.open(str(path)):
                picture = drawn_picture(cluster)
                for width in WIDTHS:
                    root = parsed_svg(draw(picture, width, stands_alone=True))
                    _check_drawing(root, picture, width)
                    drawn += 1
    assert drawn > 60


def _check_drawing(root: ElementTree.Element, picture: Picture, width: int) -> None:
    assert root.get("width") == str(width)
    texts = ["".join(element.itertext()) for element in root.iter(f"{SVG}text")]
    for lane in picture.controllers:
        assert any(lane.name in text.split() for text in texts), lane.name
        assert lane.standing in texts
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    fills = {element.get("fill") for element in root.iter() if element.get("fill")}
    assert {fill.removeprefix("url(#").removesuffix(")") for fill in fills if fill} <= set(ids)


def test_texts_of_a_log_cannot_act(captured_logs: Path) -> None:
    picture = drawn_picture(only_cluster(captured_logs / "six" / "06-three-of-six-down"))
    harmful = '</text><script>alert(1)</script>"\u202e'
    bracket = replace(picture.brackets[0], label=harmful)
    lane = replace(picture.controllers[0], standing=harmful, role=harmful, end_label=harmful)
    picture = replace(picture, title=harmful, brackets=(bracket,), controllers=(lane,))
    for width in WIDTHS:
        root = parsed_svg(draw(picture, width, stands_alone=True))
        assert not list(root.iter(f"{SVG}script"))
        assert "\u202e" not in "".join(root.itertext())
        assert r"\u202e" in "".join(root.itertext())


def test_hundreds_of_brokers_share_a_lane_but_those_in_trouble(build: HistoryBuilder) -> None:
    build.three_nodes(300).brokers(*range(100, 400)).partition("t-0", 5, replicas=[100, 101], isr=[100, 101])
    for place, broker in enumerate((150, 151)):
        build.broker(broker, 20 + place, fenced=True)
    picture = picture_of(build.history(), [])
    assert picture is not None
    assert [lane.name for lane in picture.brokers] == ["150", "151", "298 more brokers"]
    for broker in range(200, 230):
        build.broker(broker, 40 + broker, fenced=True)
    picture = picture_of(build.history(), [])
    assert picture is not None
    lanes = (*picture.controllers, *picture.brokers)
    assert len(lanes) <= LANES_MAX
    assert picture.lanes_left_out == 33 - len(picture.brokers)
    assert "more brokers, each with less trouble" in draw(picture)


def test_a_history_without_a_time_has_no_picture(build: HistoryBuilder) -> None:
    assert picture_of(build.history(), []) is None


def test_a_long_history_shows_its_newest_incidents_and_says_so(build: HistoryBuilder) -> None:
    build.three_nodes(3100).brokers(11, 12)
    for number in range(30):
        build.broker(11, 100 * number + 50, fenced=True).broker(11, 100 * number + 60)
    history = build.history()
    rows = [
        {
            "kind": "broker_loss",
            "severity": "high",
            "headline": "Broker 11 was lost",
            "subject": "11",
            "state": "resolved",
            "is_open": False,
            "from_ms": T0 + at * 1000,
            "to_ms": T0 + (at + 10) * 1000,
        }
        for at in (100 * number + 50 for number in reversed(range(30)))
    ]
    picture = picture_of(history, rows)
    assert picture is not None
    assert [bracket.number for bracket in picture.brackets] == [9, 8, 7, 6, 5, 4, 3, 2, 1]
    assert picture.earlier == 21
    assert picture.from_ms <= picture.brackets[0].from_ms
    assert "21 more incidents not numbered here" in draw(picture)
