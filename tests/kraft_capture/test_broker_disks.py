"""The small files of a broker's disks come along, of every log dir, and never a byte of a segment."""

from __future__ import annotations

import gzip
import hashlib
import itertools
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from kraft_capture import broker_disks
from kraft_capture.broker_disks import DiskReading, read_disks
from kraft_capture.cli import main
from kraft_capture.generation import DISKS_APART_MS, DISKS_KEPT, DiskCopy, Generation
from kraft_capture.log_dirs import identify
from kraft_codec.files.properties import format_meta_properties, meta_properties
from tests.builders.live_log import CLUSTER_ID, LiveLog, StoreWitness

SECOND_ID = "w7Kq0PZCSF2dMh5zV1c9Tw"
EPOCHS, TOPIC = "0\n2\n0 0\n3 17\n", "version: 0\ntopic_id: Bl2Ec9zTQUqPzJgMZzRy0g"
MARKS = "0\n1\norders 0 16\n"


def partition(log_dir: Path, name: str) -> Path:
    folder = log_dir / name
    folder.mkdir()
    (folder / "leader-epoch-checkpoint").write_text(EPOCHS)
    (folder / "partition.metadata").write_text(TOPIC)
    (folder / f"{0:020d}.log").write_bytes(b"customers' data")
    return folder


@pytest.fixture
def broker(tmp_path: Path) -> list[Path]:
    """A broker with two disks; the metadata log is on the first."""
    log = LiveLog(tmp_path / "first")
    log.append(5)
    second = tmp_path / "second"
    second.mkdir()
    meta = meta_properties(cluster_id=CLUSTER_ID, node_id=1, directory_id=SECOND_ID)
    (second / "meta.properties").write_bytes(format_meta_properties(meta))
    (second / "replication-offset-checkpoint").write_text(MARKS)
    (second / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":7}')
    partition(log.folder, "payments-2")
    partition(second, "orders-0")
    partition(second, "orders-1.0123456789abcdef0123456789abcdef-delete")
    (second / "cleaner-offset-checkpoint").write_text("0\n0\n")
    return [log.folder, second]


def rows_of(content: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(content).splitlines()]


def read(broker: list[Path], limit: int = 100) -> DiskReading:
    reading = read_disks(identify(str(broker[0])), [str(path) for path in broker], limit)
    assert reading is not None
    return reading


def test_both_disks_as_their_files_say(broker: list[Path]) -> None:
    reading = read(broker)
    head, first, payments, second, orders = rows_of(reading.content)
    assert (head["format"], head["cluster_id"], head["node_id"]) == ("kraft-capture-disks/1", CLUSTER_ID, 1)
    assert reading.name == f"broker-disks-{head['at_ms']:013d}.jsonl.gz"
    assert (first["log_dir"], first["files"].keys()) == (str(broker[0]), {"meta.properties"})
    texts = {name: file["text"] for name, file in second["files"].items()}
    assert (second["directory_id"], texts.pop("replication-offset-checkpoint")) == (SECOND_ID, MARKS)
    assert texts.pop(".kafka_cleanshutdown") == '{"version":0,"brokerEpoch":7}'
    assert texts.keys() == {"meta.properties"}
    changed_ms = (broker[1] / "orders-0" / "leader-epoch-checkpoint").stat().st_mtime_ns // 1_000_000
    assert orders == {
        "name": "orders-0",
        "partition.metadata": TOPIC,
        "leader-epoch-checkpoint": EPOCHS,
        "epochs_mtime_ms": changed_ms,
    }
    assert payments["name"] == "payments-2"
    assert (reading.partition_count, reading.problems) == (2, [])
    assert b"customers" not in gzip.decompress(reading.content)


def test_watermarks_are_read_before_leader_epochs(broker: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """So that epochs that did not change since the watermarks were written belong to the same state."""
    names: list[str] = []
    real = broker_disks.open_below
    monkeypatch.setattr(broker_disks, "open_below", lambda folder, name: (names.append(name), real(folder, name))[1])
    read(broker)
    assert names[-3:] == ["replication-offset-checkpoint", "partition.metadata", "leader-epoch-checkpoint"]


def test_a_partition_that_goes_away_meanwhile_is_counted(broker: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    real = broker_disks._partition_dirs
    monkeypatch.setattr(broker_disks, "_partition_dirs", lambda folder: [*real(folder), "orders-9"])
    reading = read(broker)
    assert (reading.partition_count, reading.vanished_count, reading.problems) == (2, 2, [])
    assert rows_of(reading.content)[0]["vanished_count"] == 2


def test_partitions_beyond_the_limit_are_said_and_0_copies_none(
    broker: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dirs = ["--log-dirs", ",".join(map(str, broker))]
    assert main(["--tar", str(tmp_path / "one.tar"), *dirs, "--partitions", "1"]) == 0
    assert "1 partitions beyond the first 1 are not copied" in capsys.readouterr().err
    assert read(broker, 1).partition_count == 1
    assert main(["--tar", str(tmp_path / "none.tar"), *dirs, "--partitions", "0"]) == 0
    assert packs(tmp_path / "none.tar") == []
    with pytest.raises(SystemExit):
        main(["--tar", str(tmp_path / "x.tar"), *dirs, "--partitions", "many"])


def packs(archive: Path) -> list[tuple[str, bytes]]:
    with tarfile.open(archive) as tar:
        names = [name for name in tar.getnames() if "broker-disks-" in name]
        return [(name, tar.extractfile(name).read()) for name in names]  # type: ignore[union-attr]


def test_links_are_not_followed_and_what_cannot_be_read_is_named(
    broker: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (broker[1] / "orders-3").symlink_to(broker[0] / "payments-2")
    (broker[1] / "orders-0" / "leader-epoch-checkpoint").unlink()
    (broker[1] / "orders-0" / "leader-epoch-checkpoint").symlink_to(broker[0] / "meta.properties")
    (broker[1] / "replication-offset-checkpoint").unlink()
    (broker[1] / "replication-offset-checkpoint").mkdir()
    assert main(["--tar", str(tmp_path / "one.tar"), "--log-dirs", ",".join(map(str, broker))]) == 3
    error = capsys.readouterr().err
    assert "second: 2 small files unreadable, replication-offset-checkpoint (EINVAL) first" in error
    ((_, content),) = packs(tmp_path / "one.tar")
    *_, second, orders = rows_of(content)
    assert second["unreadable"] == [
        "replication-offset-checkpoint (EINVAL)",
        "orders-0/leader-epoch-checkpoint (ELOOP)",
    ]
    assert orders == {"name": "orders-0", "partition.metadata": TOPIC}


def test_a_file_larger_than_any_of_its_kind_is_not_read(broker: list[Path]) -> None:
    (broker[1] / "orders-0" / "partition.metadata").write_bytes(b" " * ((64 << 10) + 1))
    reading = read(broker)
    assert [line.rpartition(": ")[2] for line in reading.problems] == [
        "1 small files unreadable, orders-0/partition.metadata (EFBIG) first"
    ]


def test_disks_of_other_nodes_and_controllers_give_none(broker: list[Path], tmp_path: Path) -> None:
    second = LiveLog(tmp_path / "node-2", node_id=2)
    partition(second.folder, "orders-0")
    head, *rest = rows_of(read([*broker, second.folder]).content)
    assert [row["log_dir"] for row in rest if "log_dir" in row] == [str(path) for path in broker]
    assert head["partition_count"] == 2
    controller = LiveLog(tmp_path / "controller", node_id=3)
    assert read_disks(identify(str(controller.folder)), [str(controller.folder)], 100) is None


def test_a_store_holds_them_as_an_object_that_the_manifest_names(broker: list[Path], tmp_path: Path) -> None:
    store = tmp_path / "store"
    arguments = ["--log-dirs", ",".join(map(str, broker)), "--to", str(store), "--state", str(tmp_path / "state")]
    assert main([*arguments, "--once", "--durable"]) == 0
    (broker[1] / "replication-offset-checkpoint").write_text(MARKS.replace("16", "18"))
    assert main([*arguments, "--once", "--durable"]) == 0
    witness = StoreWitness(next(store.glob("*/*")))
    witness.check()
    _, manifest = witness.newest()
    paths = [entry["path"] for entry in manifest["entries"]]
    assert paths == sorted(paths)
    entries = [entry for entry in manifest["entries"] if entry["path"].startswith("broker-disks-")]
    assert len(entries) == 2, "the earlier copy stays: what was visible then may be gone later"
    marks = []
    for entry in entries:
        ((position, size, digest),) = entry["ranges"]
        (file,) = store.rglob(digest)
        content = file.read_bytes()
        assert (position, size, hashlib.sha256(content).hexdigest()) == (0, len(content), digest)
        rows = {row["log_dir"]: row for row in rows_of(content) if "log_dir" in row}
        marks.append(rows[str(broker[1])]["files"]["replication-offset-checkpoint"]["text"])
    assert marks == [MARKS, MARKS.replace("16", "18")]


def test_of_older_copies_one_stays_for_each_hour_of_a_week() -> None:
    generation = Generation.start({}, 0)
    for quarter in range(4 * 24 * 8):
        at_ms = quarter * DISKS_APART_MS // 4
        generation.acknowledge_disks(DiskCopy(f"broker-disks-{at_ms:013d}.jsonl.gz", at_ms, 1, "0" * 64))
    times = [copy.at_ms for copy in generation.disks]
    assert len(times) == DISKS_KEPT
    assert times[-1] == (4 * 24 * 8 - 1) * DISKS_APART_MS // 4
    assert {later - earlier for earlier, later in itertools.pairwise(times[:-1])} == {DISKS_APART_MS}


def test_the_log_dirs_are_only_read(broker: list[Path], tmp_path: Path) -> None:
    def state() -> dict[str, tuple[int, int, int]]:
        paths = [path for folder in broker for path in [folder, *folder.rglob("*")]]
        return {str(path): (path.stat().st_mtime_ns, path.stat().st_size, path.stat().st_atime_ns) for path in paths}

    before = {path: row for path, row in state().items() if Path(path).is_file()}
    read(broker)
    assert {path: row for path, row in state().items() if Path(path).is_file()} == before
