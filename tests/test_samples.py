"""The samples are what their notes say: archives with named captures, and an oracle for every log and snapshot."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
import yaml

from scripts.pack_captures import packed
from tests.builders.captures import DATA, PREALLOCATED_BYTES, SAMPLES, SMALL_CORPUS

ARCHIVES = sorted(SAMPLES.glob("*.tgz"))
CLUSTERS = sorted(path.parents[1].name for path in SMALL_CORPUS.glob("*/oracle-files/index.json"))


def test_there_are_samples() -> None:
    assert len(ARCHIVES) == 10
    assert len(CLUSTERS) == 10, "nine clusters, and the crafted logs"
    assert sum(path.stat().st_size for path in ARCHIVES) < 1 << 20


def test_data_of_tests_is_small() -> None:
    sizes = [path.stat().st_size for path in DATA.rglob("*") if path.is_file()]
    assert max(sizes) < 4 << 20
    assert sum(sizes) < 6 << 20


def test_no_test_of_rules_needs_the_large_corpus(project_root: Path) -> None:
    """In a plain clone those tests would skip."""
    sources = sorted((project_root / "tests" / "kraft_audit" / "rules").rglob("test_*.py"))
    assert len(sources) > 10
    assert [source.name for source in sources if "corpus: Path" in source.read_text().replace("small_corpus", "")] == []


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_every_log_and_snapshot_has_its_oracle(small_corpus: Path, cluster: str) -> None:
    folder = small_corpus / cluster
    index = json.loads((folder / "oracle-files" / "index.json").read_text())
    without_file = [path for path in index if not (folder / path).exists()]
    assert not without_file
    read_by_kafka = {
        path.relative_to(folder).as_posix() for kind in ("*.log", "*.checkpoint") for path in folder.rglob(kind)
    }
    assert read_by_kafka <= index.keys()
    for path in read_by_kafka:
        for oracle in ("dump.txt.gz", "records.jsonl.gz"):
            assert (folder / "oracle-files" / f"{index[path]}.{oracle}").is_file(), f"{path} has no {oracle}"


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name)
def test_the_notes_name_every_archive_and_capture(samples: Path, archive: Path) -> None:
    notes = (samples / "README.md").read_text()
    with tarfile.open(archive) as members:
        captures = {name.split("/")[0] for name in members.getnames()}
    assert [name for name in (archive.name, *captures) if f"`{name}`" not in notes] == []


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name)
def test_an_archive_shows_nothing_of_the_machine_that_packed_it(archive: Path) -> None:
    with tarfile.open(archive) as members:
        found = members.getmembers()
    names = [member.name.rstrip("/") for member in found]
    assert names == sorted(names, key=lambda name: name.split("/"))
    assert {(member.mtime, member.uid, member.gid, member.uname, member.gname) for member in found} == {
        (0, 0, 0, "", "")
    }


def test_packing_again_gives_the_same_bytes(small_corpus: Path, samples: Path, tmp_path: Path) -> None:
    content = packed(small_corpus / "divergence", ["12-after-truncation"])
    (tmp_path / "again.tgz").write_bytes(content)
    assert content == packed(small_corpus / "divergence", ["12-after-truncation"])
    with tarfile.open(tmp_path / "again.tgz") as again, tarfile.open(samples / "divergence.tgz") as shipped:
        expected = {name for name in shipped.getnames() if name.startswith("12-after-truncation/")}
        assert {name for name in again.getnames() if "/oracle/" not in name} == expected


def test_the_unpacked_corpus_holds_the_bytes_of_the_archives(samples: Path, small_corpus: Path) -> None:
    compared = 0
    with tarfile.open(samples / "elr-06-kill-13-last-replica.tgz") as archive:
        for member in archive:
            content = archive.extractfile(member)
            if content is not None and member.size < PREALLOCATED_BYTES - 12:
                assert content.read() == (small_corpus / "elr" / member.name).read_bytes(), member.name
                compared += 1
    assert compared == sum(path.is_file() for path in small_corpus.glob("elr/06-kill-13-last-replica/node-*/**/*"))


def test_the_sample_fleet_names_the_ids_that_kafka_wrote(small_corpus: Path, project_root: Path) -> None:
    fleet = yaml.safe_load((project_root / "conf" / "fleet.yaml").read_text())
    declared = {cluster["name"]: cluster["cluster_id"] for cluster in fleet["clusters"]}
    written = {}
    for meta in small_corpus.glob("*/*/node-*/meta.properties"):
        properties = dict(line.split("=", 1) for line in meta.read_text().splitlines() if "=" in line)
        written[meta.parents[2].name] = properties["cluster.id"]
    assert declared == written
