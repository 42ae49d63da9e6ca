"""Every replica is found, whatever a path is, and a directory gives the same as an archive of it."""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path

import pytest

from kraft_codec.errors import Reason
from kraft_codec.file_names import FileKind
from kraft_codec.files.discovery import Discovery, ReplicaDir, discover
from kraft_codec.files.logdir import read_meta
from kraft_codec.storage.opener import open_storage
from tests.builders.node_dirs import MakeNodeDir, heads


def found_below(path: Path) -> Discovery:
    with open_storage(path) as storage:
        return discover(storage)


def shape(replica: ReplicaDir, root: str = "") -> tuple[object, ...]:
    """What must not depend on whether a tree lies in a directory or in an archive of it."""
    files = tuple((file.path.removeprefix(root), file.kind, file.size_bytes) for file in replica.files)
    return (replica.capture, replica.node_dir.removeprefix(root), replica.path.removeprefix(root), files)


# What a path may be


def test_a_log_dir_a_node_dir_and_a_directory_of_node_dirs(make_node_dir: MakeNodeDir, tmp_path: Path) -> None:
    for node_id in (1, 2, 3):
        make_node_dir(tmp_path / f"node-{node_id}", node_id=node_id)
    everything = found_below(tmp_path)
    assert [(replica.capture, replica.node_dir) for replica in everything.replicas] == [
        ("", "node-1"),
        ("", "node-2"),
        ("", "node-3"),
    ]
    assert everything.damages == ()
    for path in (tmp_path / "node-2", tmp_path / "node-2" / "__cluster_metadata-0"):
        with open_storage(path) as storage:
            (replica,) = discover(storage).replicas
            meta = heads(storage, replica).meta
        assert (replica.capture, replica.node_dir, replica.path) == ("", "", "__cluster_metadata-0")
        assert meta is not None
        assert meta.node_id == 2
        assert {file.kind for file in replica.files} >= {FileKind.META_PROPERTIES, FileKind.SEGMENT}


def test_a_directory_of_captures_of_the_same_nodes(make_node_dir: MakeNodeDir, tmp_path: Path) -> None:
    for capture in ("00-before", "01-after"):
        for node_id in (1, 2):
            make_node_dir(tmp_path / "incident" / capture / f"node-{node_id}", node_id=node_id)
    (tmp_path / "incident" / "notes").mkdir()
    for path in (tmp_path, tmp_path / "incident"):
        captures = [replica.capture for replica in found_below(path).replicas]
        assert captures == ["00-before", "00-before", "01-after", "01-after"]


def test_captures_of_one_node_stay_apart(make_node_dir: MakeNodeDir, tmp_path: Path) -> None:
    for capture in ("00", "01", "02"):
        make_node_dir(tmp_path / capture / "node-1")
    assert [replica.capture for replica in found_below(tmp_path).replicas] == ["00", "01", "02"]


def test_a_directory_a_host_is_one_capture(make_node_dir: MakeNodeDir, tmp_path: Path) -> None:
    for node_id in (1, 2, 3):
        make_node_dir(tmp_path / "now" / f"host-{node_id}" / "var" / "kafka", node_id=node_id)
    assert [replica.capture for replica in found_below(tmp_path).replicas] == ["", "", ""]
    for node_id in (1, 2, 3):
        make_node_dir(tmp_path / "later" / f"host-{node_id}" / "var" / "kafka", node_id=node_id)
    captures = [replica.capture for replica in found_below(tmp_path).replicas]
    assert captures == ["later", "later", "later", "now", "now", "now"]


def test_hosts_of_unknown_nodes_are_not_joined(make_node_dir: MakeNodeDir, tmp_path: Path) -> None:
    make_node_dir(tmp_path / "a" / "data", node_id=None)
    make_node_dir(tmp_path / "b" / "data", node_id=2)
    assert [replica.capture for replica in found_below(tmp_path).replicas] == ["a", "b"]


@pytest.mark.parametrize("wiped", [{1}, {2}, {3}, {1, 3}])
def test_a_wiped_disk_does_not_part_the_other_hosts(
    make_node_dir: MakeNodeDir, tmp_path: Path, wiped: set[int]
) -> None:
    """Nothing says whose an empty log dir was, nor that it is of another moment than the hosts that are known."""
    for node_id in (1, 2, 3, 4):
        if node_id in wiped:
            (tmp_path / f"host-{node_id}" / "data" / "__cluster_metadata-0").mkdir(parents=True)
        else:
            make_node_dir(tmp_path / f"host-{node_id}" / "data", node_id=node_id)
    assert [replica.capture for replica in found_below(tmp_path).replicas] == [""] * 4


@pytest.mark.parametrize("times", [1, 2])
def test_a_wiped_disk_joins_no_captures_of_one_node(make_node_dir: MakeNodeDir, tmp_path: Path, times: int) -> None:
    """One node at several moments, or once: an empty log dir beside does not make hosts of the moments."""
    for moment in range(times):
        make_node_dir(tmp_path / f"0{moment}" / "node-1")
    (tmp_path / "after" / "node-1" / "__cluster_metadata-0").mkdir(parents=True)
    assert [replica.capture for replica in found_below(tmp_path).replicas] == [*("00", "01")[:times], "after"]


def test_a_copied_log_dir_under_another_name(make_node_dir: MakeNodeDir, tmp_path: Path) -> None:
    make_node_dir(tmp_path / "host", log_dir="metadata-copy")
    assert [replica.path for replica in found_below(tmp_path).replicas] == ["host/metadata-copy"]
    alone = tmp_path / "host" / "metadata-copy"
    assert [replica.path for replica in found_below(alone).replicas] == [""]
    (alone / "quorum-state").unlink()
    assert [replica.path for replica in found_below(alone).replicas] == [""]
    assert found_below(tmp_path).replicas == ()


def test_one_segment_or_snapshot_alone(make_node_dir: MakeNodeDir, tmp_path: Path) -> None:
    make_node_dir(tmp_path / "node-1")
    for path in sorted((tmp_path / "node-1" / "__cluster_metadata-0").glob("0*")):
        (replica,) = found_below(path).replicas
        assert [file.name for file in replica.files] == [path.name]


def test_other_partitions_of_a_broker_are_left_aside(make_node_dir: MakeNodeDir, tmp_path: Path) -> None:
    node_dir = make_node_dir(tmp_path / "node-1")
    make_node_dir(node_dir / "orders-0", log_dir=".")
    shutil.copytree(node_dir / "__cluster_metadata-0", node_dir / "payments-12")
    (tmp_path / "node-1b").mkdir()
    shutil.copy(node_dir / "meta.properties", tmp_path / "node-1b")
    make_node_dir(tmp_path / "node-1b" / "orders-1", log_dir=".")
    found = found_below(tmp_path)
    assert [replica.path for replica in found.replicas] == ["node-1/__cluster_metadata-0"]
    assert found.further_log_dirs == ("node-1b",)


def test_an_empty_log_dir_is_a_replica_without_a_log(tmp_path: Path) -> None:
    (tmp_path / "node-1" / "__cluster_metadata-0").mkdir(parents=True)
    (replica,) = found_below(tmp_path).replicas
    assert replica.files == ()


def test_nothing_to_find_is_no_error(tmp_path: Path) -> None:
    assert found_below(tmp_path) == Discovery((), (), ())


def test_archives_in_a_directory_stand_as_directories(make_node_dir: MakeNodeDir, tmp_path: Path) -> None:
    for name in ("monday.tgz", "tuesday.tar"):
        tree = tmp_path / "tree"
        for node_id in (1, 2):
            make_node_dir(tree / f"node-{node_id}", node_id=node_id)
        with tarfile.open(tmp_path / name, "w:gz" if name.endswith("gz") else "w") as archive:
            archive.add(tree, ".")
        shutil.rmtree(tree)
    (tmp_path / "broken.zip").write_bytes(b"PK\x03\x04 and no more")
    (tmp_path / "empty.tar").write_bytes(b"")
    make_node_dir(tmp_path / "plain.tar.gz" / "node-1")
    with open_storage(tmp_path) as storage:
        found = discover(storage)
        assert [(replica.capture, replica.node_dir) for replica in found.replicas] == [
            ("monday.tgz", "monday.tgz/node-1"),
            ("monday.tgz", "monday.tgz/node-2"),
            ("plain.tar.gz", "plain.tar.gz/node-1"),
            ("tuesday.tar", "tuesday.tar/node-1"),
            ("tuesday.tar", "tuesday.tar/node-2"),
        ]
        assert [read_meta(storage, replica)[0] is not None for replica in found.replicas] == [True] * 5
        assert storage.medium("monday.tgz/node-1") == "archive"
        assert storage.medium("plain.tar.gz/node-1") == "directory"
    assert {damage.path: damage.reason for damage in found.damages} == {
        "broken.zip": Reason.BAD_FILE,
        "empty.tar": Reason.BAD_FILE,
    }
    # A worker that gets just the path opens the archive on its way.
    with open_storage(tmp_path) as storage:
        assert storage.read_small("monday.tgz/node-2/meta.properties")


# The captures of Apache Kafka


def node_id_of(meta_properties: Path) -> str:
    lines = meta_properties.read_text().splitlines()
    return next(line.removeprefix("node.id=") for line in lines if line.startswith("node.id="))


def test_every_node_of_every_capture_is_found(scenarios: list[Path]) -> None:
    replica_count = 0
    for scenario in scenarios:
        found = found_below(scenario)
        logs = set(scenario.rglob("__cluster_metadata-0"))
        node_ids = {path.parent: node_id_of(path) for path in scenario.rglob("meta.properties")}
        with_log = {(log.parent.parent, node_ids.get(log.parent)) for log in logs}
        without_log = {node_dir for node_dir in node_ids if node_dir / "__cluster_metadata-0" not in logs}
        unstarted = {node_dir for node_dir in without_log if (node_dir.parent, node_ids[node_dir]) not in with_log}
        logs |= {node_dir / "__cluster_metadata-0" for node_dir in unstarted}
        assert [replica.path for replica in found.replicas] == sorted(
            log.relative_to(scenario).as_posix() for log in logs
        )
        assert found.damages == ()
        assert set(found.further_log_dirs) == {
            node_dir.relative_to(scenario).as_posix() for node_dir in without_log - unstarted
        }
        assert not [file for replica in found.replicas for file in replica.files if "dir2" in file.name]
        replica_count += len(found.replicas)
    assert replica_count > 20


def test_captures_are_named_as_in_their_notes(scenarios: list[Path]) -> None:
    checked = 0
    for scenario in scenarios:
        labels = {
            capture["label"] for capture in json.loads((scenario / "scenario.json").read_text()).get("captures", [])
        }
        captures = {replica.capture for replica in found_below(scenario).replicas}
        if labels and len(captures) > 1:
            assert captures <= labels, scenario
            checked += 1
    assert checked >= 2


def test_each_way_to_name_a_node_gives_the_same_files(scenarios: list[Path]) -> None:
    scenario = next(path for path in scenarios if path.name == "elr")
    for whole in found_below(scenario).replicas:
        for path in (scenario / whole.node_dir, scenario / whole.path):
            (alone,) = found_below(path).replicas
            assert [(file.name, file.size_bytes) for file in alone.files] == [
                (file.name, file.size_bytes) for file in whole.files
            ]


def test_an_archive_gives_the_same_as_its_directory(scenarios: list[Path], tmp_path: Path) -> None:
    for scenario in scenarios[:6]:
        archive = tmp_path / f"{scenario.name}.tgz"
        with tarfile.open(archive, "w:gz", compresslevel=1) as writer:
            writer.add(scenario, scenario.name, filter=lambda member: None if "oracle" in member.name else member)
        plain, packed = found_below(scenario), found_below(archive)
        assert [shape(replica) for replica in plain.replicas] == [
            shape(replica, f"{scenario.name}/") for replica in packed.replicas
        ]
        assert packed.damages == ()


@pytest.mark.slow
def test_the_archives_of_the_captures_give_the_same_as_their_directories(corpus: Path, project_root: Path) -> None:
    archives = sorted((project_root.parent / "shared" / "corpus").glob("*.tar.gz"))
    if not archives:
        pytest.skip("the archives of the captures are not at hand")
    for archive in archives:
        name = archive.name.removesuffix(".tar.gz")
        plain, packed = found_below(corpus / name), found_below(archive)
        assert [shape(replica) for replica in plain.replicas] == [
            shape(replica, f"{name}/") for replica in packed.replicas
        ], name
        assert plain.replicas
        assert packed.damages == ()
        with open_storage(corpus / name) as left, open_storage(archive) as right:
            for replica, twin in zip(plain.replicas, packed.replicas, strict=True):
                for file, copy in zip(replica.files, twin.files, strict=True):
                    if file.kind in (FileKind.SEGMENT, FileKind.SNAPSHOT, FileKind.QUORUM_STATE):
                        assert left.read_small(file.path) == right.read_small(copy.path), file.path


def test_a_meta_properties_that_names_no_node_joins_no_capture(make_node_dir: MakeNodeDir, tmp_path: Path) -> None:
    """Version 0 without a broker.id, as a formatted node of ZooKeeper's time had it."""
    make_node_dir(tmp_path / "a" / "data", node_id=None)
    (tmp_path / "a" / "data" / "meta.properties").write_text("version=0\n")
    make_node_dir(tmp_path / "b" / "data", node_id=2)
    assert [replica.capture for replica in found_below(tmp_path).replicas] == ["a", "b"]
