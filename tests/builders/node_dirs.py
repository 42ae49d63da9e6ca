"""What the tests of storages and log dirs share: node dirs made from the codec's own writers."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kraft_codec.errors import Damage
from kraft_codec.file_names import segment_name, snapshot_name
from kraft_codec.files.discovery import ReplicaDir
from kraft_codec.files.logdir import read_checkpoints, read_meta, read_quorum_state
from kraft_codec.files.properties import MetaProperties, format_meta_properties, meta_properties
from kraft_codec.files.state_files import (
    EpochEntry,
    PartitionMetadata,
    QuorumState,
    format_leader_epoch_checkpoint,
    format_partition_metadata,
    format_quorum_state,
)
from kraft_codec.records.batch import write_batch
from kraft_codec.records.record import write_metadata_value
from kraft_codec.storage.opener import open_storage
from kraft_codec.storage.random_access import Storage

CLUSTER_ID = "1J9o0OHjczjslRjLY5Qr2g"
DIRECTORY_ID = "xV_y8TMF5MnS9I6ei-5QSQ"
SEGMENT_PATH = f"__cluster_metadata-0/{segment_name(0)}"
MakeNodeDir = Callable[..., Path]


@dataclass(frozen=True, slots=True)
class Heads:
    """What the small files of a replica say."""

    meta: MetaProperties | None
    leader_epochs: tuple[EpochEntry, ...] | None
    quorum_state: QuorumState | None
    damages: tuple[Damage, ...]


def heads(storage: Storage, replica: ReplicaDir) -> Heads:
    """All that the small files say, quorum-state last, as a capture reads them."""
    meta, of_meta = read_meta(storage, replica)
    epochs, of_checkpoints = read_checkpoints(storage, replica)
    state, of_state = read_quorum_state(storage, replica)
    return Heads(meta, epochs, state, (*of_meta, *of_checkpoints, *of_state))


def no_op_batch(base_offset: int, record_count: int) -> bytes:
    """A batch of NoOpRecords."""
    value = write_metadata_value("NoOpRecord", 0, {})
    return write_batch(base_offset=base_offset, leader_epoch=1, timestamp_ms=1, records=[(None, value)] * record_count)


def segment_bytes(base_offset: int, batch_count: int = 3, record_count: int = 10) -> bytes:
    """`batch_count` batches of `record_count` records each, from `base_offset` on."""
    return b"".join(no_op_batch(base_offset + number * record_count, record_count) for number in range(batch_count))


@pytest.fixture(scope="session")
def make_node_dir() -> MakeNodeDir:
    """Writes a small node dir: meta.properties, quorum-state, checkpoints, one segment from offset 0, one snapshot."""

    def make(path: Path, *, node_id: int | None = 1, log_dir: str = "__cluster_metadata-0") -> Path:
        log_path = path / log_dir
        log_path.mkdir(parents=True)
        if node_id is not None:
            meta = meta_properties(cluster_id=CLUSTER_ID, node_id=node_id, directory_id=DIRECTORY_ID)
            (path / "meta.properties").write_bytes(format_meta_properties(meta))
        (log_path / segment_name(0)).write_bytes(segment_bytes(0))
        (log_path / snapshot_name(10, 1)).write_bytes(no_op_batch(0, 1))
        (log_path / "quorum-state").write_bytes(format_quorum_state(QuorumState(1, 1, 1, -1, "AAAAAAAAAAAAAAAAAAAAAA")))
        (log_path / "leader-epoch-checkpoint").write_bytes(format_leader_epoch_checkpoint((EpochEntry(1, 0),)))
        metadata = PartitionMetadata(0, "AAAAAAAAAAAAAAAAAAAAAQ")
        (log_path / "partition.metadata").write_bytes(format_partition_metadata(metadata))
        return path

    return make


@pytest.fixture
def unchanged() -> Callable[[Path], str]:
    """A hash over names, modes, sizes, times and contents of a tree: it stays if nothing was written."""

    def snapshot(root: Path) -> str:
        digest = hashlib.sha256()
        for folder, directories, names in os.walk(root):
            directories.sort()
            for name in sorted([*directories, *names]):
                path = Path(folder) / name
                status = path.lstat()
                digest.update(f"{path}|{status.st_mode}|{status.st_size}|{status.st_mtime_ns}|{status.st_ino}".encode())
                if path.is_file() and not path.is_symlink() and status.st_size < 1 << 24:
                    digest.update(path.read_bytes())
        return digest.hexdigest()

    return snapshot


@pytest.fixture(scope="session")
def good(make_node_dir: MakeNodeDir, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a good node dir by their names in the archive."""
    root = tmp_path_factory.mktemp("good")
    make_node_dir(root / "node-1")
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


@pytest.fixture
def node_dir(make_node_dir: MakeNodeDir, tmp_path: Path) -> Path:
    return make_node_dir(tmp_path / "node-1")


@pytest.fixture
def storage(node_dir: Path) -> Iterator[Storage]:
    with open_storage(node_dir) as opened:
        yield opened


@contextlib.contextmanager
def as_somebody_else() -> Iterator[None]:
    """Without root's rights, where the tests run as root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
