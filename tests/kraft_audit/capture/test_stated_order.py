"""Captures are put in time by kraft-capture's notes, names, the order of PATHs and file times, in this order."""

from __future__ import annotations

import json
import tarfile
from contextlib import nullcontext
from pathlib import Path

import pytest

from kraft_audit.capture.capture_order import CaptureOrder, CaptureTimes, DiskTimes, stated_earlier
from kraft_audit.capture.path_plans import plan_path
from kraft_audit.capture.plan import ReplicaPlan
from kraft_capture.cli import main
from kraft_codec.file_names import CAPTURE_NOTE_NAME
from kraft_codec.files.state_files import QuorumState
from kraft_codec.storage.opener import open_together
from kraft_codec.storage.path_patterns import matching_paths, several_paths
from tests.builders.kept_captures import capture as keep
from tests.builders.logs import NOW_MS, Log, write_node


def times(name: str, *disks: DiskTimes) -> CaptureTimes:
    return CaptureTimes(name, dict(enumerate(disks, start=1)))


def noted(*times_ms: int | None) -> list[DiskTimes]:
    return [DiskTimes(noted_ms=time_ms) for time_ms in times_ms]


def written(*times_ms: int | None) -> list[DiskTimes]:
    return [DiskTimes(written_ms=time_ms) for time_ms in times_ms]


def on_path(*numbers: int | None) -> list[DiskTimes]:
    return [DiskTimes(path_number=number) for number in numbers]


@pytest.mark.parametrize(
    ("first", "second", "earlier"),
    [
        # kraft-capture's notes: every disk by its own clock.
        (times("b", *noted(1, 9)), times("a", *noted(2, 9)), "first"),
        (times("b", *noted(2)), times("a", *noted(1)), "second"),
        (times("b", *noted(1, 2)), times("a", *noted(2, 1)), None),
        (times("b", *noted(1)), times("a", *noted(None)), None),
        # They outweigh names, names outweigh paths, paths outweigh file times.
        (times("2026-11-28", *noted(1)), times("2026-11-27", *noted(2)), "first"),
        (times("2026-11-27", *on_path(1)), times("2026-11-28", *on_path(0)), "first"),
        (times("b", DiskTimes(None, 0, 90_000)), times("a", DiskTimes(None, 1, 1)), "first"),
        (times("2", *on_path(0)), times("1", *on_path(1)), "first"),  # counters are no times
        (times("2"), times("1"), None),
        # Different nodes on different paths are one moment.
        (CaptureTimes("a", {1: DiskTimes(path_number=0)}), CaptureTimes("b", {2: DiskTimes(path_number=1)}), None),
        # File times: more than half of the disks in both, by more than a second.
        (times("b", *written(1_000)), times("a", *written(2_001)), "first"),
        (times("b", *written(1_000)), times("a", *written(2_000)), None),
        (times("b", *written(9_000, 1_000, 1_000)), times("a", *written(1_000, 9_000, 9_000)), "first"),
        (times("b", *written(9_000, 1_000)), times("a", *written(1_000, 9_000)), None),
        (times("b", *written(1_000, 5_000)), times("a", *written(9_000, 5_000)), None),
        (times("b", *written(1_000, None)), times("a", *written(9_000, None)), None),
    ],
)
def test_what_says_which_is_earlier(first: CaptureTimes, second: CaptureTimes, earlier: str | None) -> None:
    names = {"first": first, "second": second}
    for order in (("first", "second"), ("second", "first")):
        found = stated_earlier({name: names[name] for name in order})
        assert {name for name in names if any(name in before for before in found.values())} == {earlier} - {None}


def test_what_speaks_first_stays_where_something_else_would_make_a_circle() -> None:
    captures = {
        "x": CaptureTimes("2026-11-27", {1: DiskTimes(path_number=2)}),
        "y": CaptureTimes("2026-11-28", {2: DiskTimes(path_number=0)}),
        "z": CaptureTimes("z", {1: DiskTimes(path_number=1), 2: DiskTimes(path_number=1)}),
    }
    # By path z is before x: that is left out, as y follows x by name and z follows y by path.
    assert stated_earlier(captures) == {"x": frozenset(), "y": {"x"}, "z": {"x", "y"}}


def test_an_order_holds_for_all_that_follow_and_is_never_turned_round() -> None:
    order = CaptureOrder("abcd")
    order.put("c", "d")
    order.put("a", "b")
    order.put("b", "c")
    order.put("d", "a")
    order.put("a", "a")
    assert order.all() == {"a": frozenset(), "b": {"a"}, "c": {"a", "b"}, "d": {"a", "b", "c"}}
    assert (order.knows("d", "a"), order.knows("a", "a")) == (True, False)


def test_a_node_that_is_there_twice_says_nothing(tmp_path: Path) -> None:
    write_capture(tmp_path / "a", 2)
    write_capture(tmp_path / "b", 1)
    (first, second) = (replica for replica in planned(str(tmp_path)) if replica.node_id == 1)
    assert CaptureTimes.of("x", [(first, 5), (second, 6)]) == CaptureTimes("x", {})
    assert CaptureTimes.of("x", [(first, 5)]) == CaptureTimes("x", {1: DiskTimes(None, None, 5)})


# As planning numbers them


def write_capture(folder: Path, epoch: int) -> Path:
    """One node, in this epoch: by content the higher one is the later capture."""
    log = Log()
    for _ in range(5):
        log.noop()
    write_node(folder, 1, log.content, state=QuorumState(1, -1, epoch, -1, "A" * 22))
    return folder


def planned(path: str) -> list[ReplicaPlan]:
    with open_together(matching_paths(path), path) as storage:
        (plan,) = plan_path(path, open_storage=lambda _: nullcontext(storage), captured_at_ms=NOW_MS)
    return list(plan.replicas)


def in_order(path: Path | str) -> list[str]:
    """The names of captures in time."""
    numbers = {replica.capture: replica.capture_number for replica in planned(str(path))}
    return sorted(numbers, key=lambda name: numbers[name])


def test_names_with_dates_outweigh_content(tmp_path: Path) -> None:
    for name, epoch in (("2026-11-27", 9), ("2026-11-28", 4)):
        write_capture(tmp_path / name, epoch)
    assert in_order(tmp_path) == ["2026-11-27", "2026-11-28"]


def test_an_undated_one_among_dated_ones_has_its_place_by_content(tmp_path: Path) -> None:
    for name, epoch in (("2026-11-27", 5), ("2026-11-28", 5), ("current", 4)):
        write_capture(tmp_path / name, epoch)
    assert in_order(tmp_path) == ["current", "2026-11-27", "2026-11-28"]


@pytest.mark.parametrize(("first", "second"), [("friday", "saturday"), ("saturday", "friday")])
def test_paths_are_in_the_order_in_which_they_are_given(tmp_path: Path, first: str, second: str) -> None:
    write_capture(tmp_path / first, 9)
    write_capture(tmp_path / second, 4)
    assert in_order(several_paths([str(tmp_path / first), str(tmp_path / second)])) == [first, second]


def test_what_a_pattern_matches_is_in_the_order_of_content(tmp_path: Path) -> None:
    write_capture(tmp_path / "friday", 9)
    write_capture(tmp_path / "saturday", 4)
    assert in_order(tmp_path / "*") == ["saturday", "friday"]
    assert in_order(several_paths([f"{tmp_path}/f*", f"{tmp_path}/s*"])) == ["saturday", "friday"]


def test_paths_of_different_nodes_are_one_capture(tmp_path: Path) -> None:
    for node_id in (1, 2):
        log = Log()
        log.noop()
        write_node(tmp_path / f"host-{node_id}", node_id, log.content)
    assert {r.capture_number for r in planned(several_paths([str(tmp_path / f"host-{n}") for n in (2, 1)]))} == {0}


def test_a_manifest_says_when_a_store_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The later copy is of a disk that went back, and stands in the path that is given first."""
    for name, epoch, time_ms in (("b", 9, NOW_MS), ("a", 4, NOW_MS + 1)):
        monkeypatch.setattr("kraft_capture.replica_copier.wall_ms", lambda time_ms=time_ms: time_ms)
        keep(write_capture(tmp_path / f"disks-{name}", epoch) / "node-1", tmp_path / name, tmp_path / f"state-{name}")
    path = several_paths([str(tmp_path / "a"), str(tmp_path / "b")])
    assert {replica.noted_ms for replica in planned(path)} == {NOW_MS, NOW_MS + 1}
    replicas = sorted(planned(path), key=lambda replica: replica.capture_number)
    assert [replica.capture[0] for replica in replicas] == ["b", "a"]


@pytest.mark.parametrize("note", ["whole", "damaged"])
def test_an_archive_of_an_incident_says_when_it_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, note: str
) -> None:
    for name, epoch, time_ms in (("b", 9, NOW_MS), ("a", 4, NOW_MS + 1)):
        monkeypatch.setattr("kraft_capture.incident_tar.wall_ms", lambda time_ms=time_ms: time_ms)
        node = write_capture(tmp_path / f"disks-{name}", epoch) / "node-1"
        assert main(["--tar", str(tmp_path / f"{name}.tar"), "--log-dirs", str(node)]) == 0
        with tarfile.open(tmp_path / f"{name}.tar") as archive:
            archive.extractall(tmp_path / "unpacked" / name, filter="data")
    for path in (tmp_path / "unpacked").rglob(CAPTURE_NOTE_NAME):
        said = json.loads(path.read_text())
        assert said["read_to_ms"] in (NOW_MS, NOW_MS + 1)
        path.write_text(json.dumps(said) if note == "whole" else '{"read_to_ms": "soon"}')
    by_note, by_content = ["b", "a"], ["a", "b"]
    assert in_order(tmp_path / "unpacked") == (by_note if note == "whole" else by_content)
    if note == "whole":
        archives = [str(tmp_path / f"{name}.tar") for name in "ab"]
        assert in_order(several_paths(archives)) == ["b.tar", "a.tar"]
