"""A support bundle is a PATH: it is answered as the node dirs in it are, with the configurations that it holds."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import kraft_audit
from kraft_audit.capture.configurations import Configurations
from kraft_audit.commands.cli import run_command
from kraft_audit.commands.doctor import all_checks
from kraft_codec.files.configuration import NodeConfiguration
from kraft_codec.files.discovery import discover
from kraft_codec.storage.opener import open_storage
from tests.builders.node_dirs import MakeNodeDir
from tests.builders.support_bundles import BUNDLES, configuration, node_dirs_of, packed, write

SAMPLES = ("elr-06-kill-13-last-replica.tgz", "mini-4.4.0.tgz")


@pytest.fixture(scope="module", params=SAMPLES)
def nodes(
    request: pytest.FixtureRequest, project_root: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[int, Path]:
    return node_dirs_of(project_root / "samples" / request.param, tmp_path_factory.mktemp("nodes"))


def checked(path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, list[dict[str, Any]]]:
    """Exit code, text and findings of `check`, without where the path and its files lie."""
    code = run_command(["check", str(path)])
    text = capsys.readouterr().out.replace(str(path), "PATH")
    run_command(["check", str(path), "--findings", "--output", "jsonl"])
    findings = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for finding in findings:
        for evidence in finding["evidence"]:
            for name in ("path", "file"):
                evidence.pop(name, None)
    return code, text, findings


@pytest.mark.parametrize("kind", BUNDLES)
def test_a_bundle_is_answered_as_its_node_dirs_are(
    kind: str, nodes: dict[int, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = BUNDLES[kind](nodes, tmp_path)
    plain = checked(next(iter(nodes.values())).parent, capsys)
    assert plain[0] in (0, 1)
    assert plain[2]
    assert checked(bundle, capsys) == plain


@pytest.mark.parametrize("kind", BUNDLES)
def test_configurations_in_a_bundle_become_node_cards(kind: str, nodes: dict[int, Path], tmp_path: Path) -> None:
    bundle = BUNDLES[kind](nodes, tmp_path)
    with kraft_audit.open(str(bundle)) as clusters:
        (cluster,) = clusters
        cards = cluster.table("node_cards").to_pylist()
    assert {card["node_id"]: (card["configured_node_id"], card["roles"]) for card in cards} == {
        node_id: (node_id, ["broker"] if node_id > 10 else ["controller"]) for node_id in nodes
    }


@pytest.mark.parametrize("kind", BUNDLES)
def test_what_is_not_kafkas_is_counted(kind: str, nodes: dict[int, Path], tmp_path: Path) -> None:
    bundle = BUNDLES[kind](nodes, tmp_path)
    (answer,) = [check for check in all_checks([str(bundle)]) if check.what == str(bundle)]
    found = re.fullmatch(r"([0-9]+) replicas, ([0-9]+) files that are not Kafka's ignored", answer.answer)
    assert found is not None, answer.answer
    assert int(found[1]) == len(nodes)
    assert int(found[2]) >= len(nodes)


def test_a_bundle_without_any_log_dir_says_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As every script leaves it: with logs and configurations, and no disk."""
    write(tmp_path / "reports" / "podlogs" / "my-cluster-kafka-1.log", "INFO\n")
    write(tmp_path / "reports" / "configs" / "my-cluster-kafka-1.cfg", configuration(1, "a"))
    write(tmp_path / "reports" / "events" / "events.txt", "none\n")
    assert run_command(["check", str(packed(tmp_path, "report.tar.gz", tmp_path / "reports"))]) == 3
    error = capsys.readouterr().err
    assert "no metadata log (__cluster_metadata-0) was found; 2 files are not Kafka's: add copies of" in error


def card_of(path: Path, *folders: str) -> list[int | None]:
    """What the card of each node dir says its configuration's node id is, over all clusters below a path."""
    with open_storage(path) as storage:
        found = discover(storage)
        configurations = Configurations.of_storage(storage)
        cluster_ids = {replica.node_dir: replica.node_dir.partition("/")[0] for replica in found.replicas}
        texts = [configurations.elsewhere(folder, 1, found, cluster_ids) for folder in folders]
    return [NodeConfiguration.from_json(text).node_id if text else None for text in texts]


def test_a_configuration_of_another_cluster_is_not_taken(make_node_dir: MakeNodeDir, tmp_path: Path) -> None:
    """Where node dirs of two clusters lie as near, nothing says whose the configuration is; nor where two differ."""
    for cluster in ("red", "blue"):
        make_node_dir(tmp_path / cluster / "disks" / "a", node_id=1)
    write(tmp_path / "red" / "configs" / "pod-1.cfg", "node.id=1\n")
    assert card_of(tmp_path, "red/disks/a", "blue/disks/a") == [1, None]
    write(tmp_path / "configs" / "pod-1.cfg", "node.id=1\n")
    assert card_of(tmp_path, "red/disks/a", "blue/disks/a") == [1, None]
    write(tmp_path / "red" / "etc" / "server.properties", "node.id=1\nprocess.roles=broker\n")
    assert card_of(tmp_path, "red/disks/a") == [None]


def test_a_configuration_in_another_node_dir_is_that_nodes(make_node_dir: MakeNodeDir, tmp_path: Path) -> None:
    for folder in ("before", "after"):
        make_node_dir(tmp_path / "one" / folder, node_id=1)
    write(tmp_path / "one" / "before" / "server.properties", "node.id=1\n")
    assert card_of(tmp_path, "one/after") == [None]


def test_a_pods_folder_is_found_in_a_folder_and_in_an_archive(make_node_dir: MakeNodeDir, tmp_path: Path) -> None:
    """`my-cluster-controller-3` looks like a partition's folder; its quorum-state says that it is a log dir."""
    make_node_dir(tmp_path / "node", node_id=1)
    tree = tmp_path / "pods"
    shutil.copytree(tmp_path / "node" / "__cluster_metadata-0", tree / "my-cluster-controller-3")
    shutil.copytree(tmp_path / "node" / "__cluster_metadata-0", tree / "orders-3")
    (tree / "orders-3" / "quorum-state").unlink()
    for path in (tree, packed(tmp_path, "pods.tgz", tree)):
        with open_storage(path) as storage:
            (replica,) = discover(storage).replicas
            assert replica.path.endswith("my-cluster-controller-3")
            segment = next(file for file in replica.files if file.name.endswith(".log"))
            with storage.open(segment.path) as file:
                assert file.size_bytes == segment.size_bytes > 0
