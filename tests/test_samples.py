"""The samples are what their notes say: complete, witnessed, and the same bytes in the archive as in the folder."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
import yaml

SCENARIOS = sorted(path.parents[1].name for path in Path(__file__).parents[1].glob("samples/*/oracle-files/index.json"))


def test_there_are_samples() -> None:
    assert len(SCENARIOS) >= 10


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_log_and_snapshot_has_its_witness(samples: Path, scenario: str) -> None:
    folder = samples / scenario
    index = json.loads((folder / "oracle-files" / "index.json").read_text())
    without_file = [path for path in index if not (folder / path).exists()]
    assert not without_file
    read_by_kafka = {
        path.relative_to(folder).as_posix() for kind in ("*.log", "*.checkpoint") for path in folder.rglob(kind)
    }
    assert read_by_kafka <= index.keys()
    for path in read_by_kafka:
        for witness in ("dump.txt.gz", "records.jsonl.gz"):
            assert (folder / "oracle-files" / f"{index[path]}.{witness}").is_file(), f"{path} has no {witness}"


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_notes_name_every_capture(samples: Path, scenario: str) -> None:
    notes = (samples / "README.md").read_text()
    captures = {path.parents[1].name for path in (samples / scenario).glob("*/node-*/meta.properties")}
    assert [name for name in {scenario, *captures} if f"`{name}`" not in notes] == []


def test_the_archive_holds_the_same_bytes_as_the_folder(samples: Path) -> None:
    compared = 0
    with tarfile.open(samples / "elr-06-kill-13-last-replica.tgz") as archive:
        for member in archive:
            in_folder = samples / "elr" / member.name
            content = archive.extractfile(member)
            if content is not None and in_folder.is_file():
                assert content.read() == in_folder.read_bytes(), member.name
                compared += 1
    assert compared == sum(path.is_file() for path in samples.glob("elr/06-kill-13-last-replica/node-*/**/*"))


def test_the_sample_fleet_names_the_ids_that_kafka_wrote(samples: Path, project_root: Path) -> None:
    fleet = yaml.safe_load((project_root / "conf" / "fleet.yaml").read_text())
    declared = {cluster["name"]: cluster["cluster_id"] for cluster in fleet["clusters"]}
    written = {}
    for meta in samples.glob("*/*/node-*/meta.properties"):
        properties = dict(line.split("=", 1) for line in meta.read_text().splitlines() if "=" in line)
        written[meta.parents[2].name] = properties["cluster.id"]
    assert declared == written
