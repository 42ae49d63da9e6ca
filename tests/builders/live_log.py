"""A metadata log dir that changes as a controller's does, with all that ever stood in it; and a store's witness.

The witness reads what kraft-capture wrote by docs/capture-format.md alone, with the codec of this project: it shares no
code with the copier.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kraft_codec.file_names import segment_name, snapshot_name
from kraft_codec.files.properties import format_meta_properties, meta_properties
from kraft_codec.files.state_files import EpochEntry, QuorumState, format_leader_epoch_checkpoint, format_quorum_state
from kraft_codec.records.batch import Batch, read_batches, write_batch
from kraft_codec.records.record import write_metadata_value

CLUSTER_ID = "SPA6Lw-19VaaSAxl6jMkhw"
DIRECTORY_ID = "IztfOUj9Tn6xWIrmebIevg"
NO_OP = write_metadata_value("NoOpRecord", 0, {})


@dataclass(frozen=True, slots=True)
class LogBatch:
    """A batch of a log: its first offset, the one after its last, its epoch, its bytes."""

    base_offset: int
    end_offset: int
    epoch: int
    data: bytes


def no_op(base_offset: int, epoch: int, time_ms: int, count: int = 1) -> LogBatch:
    """A batch of NoOps, of the same size for each epoch and time."""
    data = write_batch(
        base_offset=base_offset, leader_epoch=epoch, timestamp_ms=1_700_000_000_000 + time_ms,
        records=[(None, NO_OP)] * count,
    )  # fmt: skip
    return LogBatch(base_offset, base_offset + count, epoch, data)


@dataclass
class LiveLog:
    """The log dir of a node.

    `states` are all batches of the log after each change, oldest first, with those of removed segments, which are
    `removed`: what was once committed below.
    """

    folder: Path
    node_id: int = 1
    epoch: int = 1
    segments: list[list[LogBatch]] = field(default_factory=lambda: [[]])
    starts: list[int] = field(default_factory=lambda: [0])
    states: list[list[LogBatch]] = field(default_factory=list)
    removed: list[LogBatch] = field(default_factory=list)
    time_ms: int = 0

    def __post_init__(self) -> None:
        self.log_dir.mkdir(parents=True)
        meta = meta_properties(cluster_id=CLUSTER_ID, node_id=self.node_id, directory_id=DIRECTORY_ID)
        (self.folder / "meta.properties").write_bytes(format_meta_properties(meta))
        self._path(0).touch()
        self.write_state()

    @property
    def log_dir(self) -> Path:
        return self.folder / "__cluster_metadata-0"

    @property
    def batches(self) -> list[LogBatch]:
        return [batch for segment in self.segments for batch in segment]

    @property
    def end_offset(self) -> int:
        return self.segments[-1][-1].end_offset if self.segments[-1] else self.starts[-1]

    @property
    def start_offset(self) -> int:
        return self.starts[0]

    def append(self, count: int = 1) -> None:
        with self._path(self.starts[-1]).open("ab") as file:
            for _ in range(count):
                self.time_ms += 1
                batch = no_op(self.end_offset, self.epoch, self.time_ms)
                self.segments[-1].append(batch)
                file.write(batch.data)
        self._note()

    def roll(self) -> None:
        if self.segments[-1]:
            self.starts.append(self.end_offset)
            self.segments.append([])
            self._path(self.starts[-1]).touch()

    def truncate(self, count: int) -> None:
        """Takes batches from the end, as a follower does whose leader has others; the next ones have a higher epoch."""
        for _ in range(count):
            while not self.segments[-1] and len(self.segments) > 1:
                self._path(self.starts.pop()).unlink()
                self.segments.pop()
            if not self.segments[-1]:
                break
            self.segments[-1].pop()
        with self._path(self.starts[-1]).open("r+b") as file:
            file.truncate(sum(len(batch.data) for batch in self.segments[-1]))
        self.epoch += 1
        self._note()

    def clean(self, count: int) -> None:
        """Removes the oldest segments, never the active one."""
        for _ in range(min(count, len(self.segments) - 1)):
            self._path(self.starts.pop(0)).unlink()
            self.removed += self.segments.pop(0)
        self._note()

    def snapshot(self) -> None:
        path = self.log_dir / snapshot_name(self.end_offset, self.epoch)
        path.write_bytes(no_op(0, self.epoch, self.time_ms).data)

    def write_state(self, leader: int = 1) -> None:
        state = QuorumState(1, leader, self.epoch, -1, "AAAAAAAAAAAAAAAAAAAAAA")
        (self.log_dir / "quorum-state").write_bytes(format_quorum_state(state))
        entries = (EpochEntry(1, 0),)
        (self.log_dir / "leader-epoch-checkpoint").write_bytes(format_leader_epoch_checkpoint(entries))

    def _path(self, base_offset: int) -> Path:
        return self.log_dir / segment_name(base_offset)

    def _note(self) -> None:
        self.states.append(self.removed + self.batches)


@dataclass
class StoredGeneration:
    """What a store holds of a generation: manifests by number, and where its objects lie."""

    name: str
    folder: Path
    manifests: dict[int, dict[str, Any]]
    texts: dict[int, bytes]


class StoreWitness:
    """Reads a folder that kraft-capture wrote, and asserts what docs/capture-format.md guarantees."""

    def __init__(self, replica_folder: Path) -> None:
        self.generations: dict[str, StoredGeneration] = {}
        for folder in sorted(replica_folder.iterdir()) if replica_folder.exists() else ():
            texts = {int(path.name[:12]): path.read_bytes() for path in sorted(folder.glob("*.json.gz"))}
            manifests = {seq: json.loads(gzip.decompress(text)) for seq, text in texts.items()}
            self.generations[folder.name] = StoredGeneration(folder.name, folder, manifests, texts)

    def check(self) -> None:
        """Numbers without a gap, chained hashes, objects that are there and named by their bytes, whole valid logs."""
        for generation in self.generations.values():
            assert sorted(generation.manifests) == list(range(1, len(generation.manifests) + 1)), generation.name
            for seq, manifest in generation.manifests.items():
                assert (manifest["format"], manifest["seq"]) == ("kraft-capture/1", seq)
                assert manifest["generation"] == generation.name
                assert manifest["parent"] == generation.manifests[1]["parent"]
                before = generation.texts.get(seq - 1)
                assert manifest["previous_sha256"] == (before and hashlib.sha256(before).hexdigest())
                self.log(generation, manifest)
            if generation.manifests:
                self._check_parent(generation.manifests[1]["parent"])

    def _check_parent(self, parent: dict[str, Any]) -> None:
        if parent["generation"] is not None:
            stored = self.generations[parent["generation"]]
            assert parent["seq"] == len(stored.manifests), "the parent's last manifest"
            assert hashlib.sha256(stored.texts[parent["seq"]]).hexdigest() == parent["sha256"]

    def newest(self) -> tuple[StoredGeneration, dict[str, Any]]:
        """The generation that is no other one's parent, and started last; its last manifest."""
        found = [each for each in self.generations.values() if each.manifests]
        parents = {each.manifests[1]["parent"]["generation"] for each in found}
        last = max((each for each in found if each.name not in parents), key=lambda each: each.manifests[1]["at_ms"])
        return last, last.manifests[max(last.manifests)]

    def files(self, generation: StoredGeneration, manifest: dict[str, Any]) -> dict[str, bytes]:
        """Path → bytes of all that a manifest says it has."""
        found: dict[str, bytes] = {}
        for entry in manifest["entries"]:
            if "ranges" in entry:
                data = b""
                for position, size, sha256 in entry["ranges"]:
                    part = (generation.folder / "objects" / sha256).read_bytes()
                    assert hashlib.sha256(part).hexdigest() == sha256
                    assert (position, size) == (len(data), len(part)), "ranges adjoin"
                    data += part
                assert len(data) == entry["copied_bytes"] <= entry["bytes"] or entry["state"] == "vanished"
                found[entry["path"]] = data
            elif "text" in entry:
                found[entry["path"]] = entry["text"].encode()
        return found

    def log(self, generation: StoredGeneration, manifest: dict[str, Any]) -> list[LogBatch]:
        """The batches of a manifest's segments, which adjoin but for its gaps."""
        found: list[LogBatch] = []
        gaps = dict(manifest["log"]["gaps"])
        for path, data in sorted(self.files(generation, manifest).items()):
            if not path.endswith(".log"):
                continue
            batches = list(whole_batches(data))
            assert not batches or batches[0].base_offset == int(Path(path).stem)
            for batch in batches:
                if found and found[-1].end_offset != batch.base_offset:
                    assert gaps.get(found[-1].end_offset) == batch.base_offset, (found[-1].end_offset, gaps)
                assert not found or found[-1].epoch <= batch.epoch
                found.append(batch)
        if found:
            assert manifest["log"]["start_offset"] == found[0].base_offset
            assert manifest["log"]["end_offset"] == found[-1].end_offset
            assert manifest["log"]["last_epoch"] == found[-1].epoch
        return found


def whole_batches(data: bytes) -> Iterator[LogBatch]:
    """Whole batches with valid CRCs and nothing else."""
    for found in read_batches(data):
        assert isinstance(found, Batch), found
        assert found.damage is None, found
        header = found.header
        part = data[header.position : header.position + header.size_bytes]
        yield LogBatch(header.base_offset, header.last_offset + 1, header.leader_epoch, part)


def refuse_to_open(monkeypatch: pytest.MonkeyPatch, *endings: str) -> None:
    """`os.open` may not open files whose names end so."""
    real = os.open

    def refused(path: str, *rest: object, **more: object) -> int:
        if str(path).endswith(endings):
            raise PermissionError(13, "Permission denied", path)
        return real(path, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", refused)
