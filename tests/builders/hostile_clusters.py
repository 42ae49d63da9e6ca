"""A cluster whose log holds what must never come out, or must come out harmless; and what all commands wrote."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kraft_codec.files.state_files import QuorumState, format_quorum_state
from kraft_codec.records.batch import write_batch
from kraft_codec.records.record import write_control_key, write_control_value, write_metadata_value
from kraft_codec.schemas import CONTROL_TYPES, Dialect
from kraft_codec.text.java_text import uuid_text

CLUSTER_ID = "SPA6Lw-19VaaSAxl6jMkhw"
NOW_MS = 1_795_000_000_000
LEADER_CHANGE = 2
Value = tuple[str, dict[str, Any]]


@pytest.fixture(scope="session")
def write_cluster() -> Callable[..., Path]:
    """Writes one controller's node dir: a LeaderChange, then a record a batch; raw bytes stand for themselves."""

    def write(folder: Path, values: Sequence[Value | bytes], tail: bytes = b"", cluster_id: str = CLUSTER_ID) -> Path:
        log = folder / "node-1" / "__cluster_metadata-0"
        log.mkdir(parents=True)
        leader_change = write_control_value(
            CONTROL_TYPES[Dialect.KIP853][LEADER_CHANGE],
            {"leaderId": 1, "voters": [{"voterId": 1}], "grantingVoters": [{"voterId": 1}]},
        )
        content = write_batch(
            base_offset=0,
            leader_epoch=1,
            timestamp_ms=NOW_MS,
            records=[(write_control_key(LEADER_CHANGE), leader_change)],
            is_control=True,
        )
        for offset, value in enumerate(values, 1):
            body = value if isinstance(value, bytes) else write_metadata_value(value[0], 0, value[1])
            content += write_batch(
                base_offset=offset, leader_epoch=1, timestamp_ms=NOW_MS + offset, records=[(None, body)]
            )
        (log / "00000000000000000000.log").write_bytes(content + tail)
        state = QuorumState(data_version=1, leader_id=1, leader_epoch=1, voted_id=-1)
        (log / "quorum-state").write_bytes(format_quorum_state(state))
        directory_id = uuid_text(bytes(range(16)))
        properties = f"version=1\ncluster.id={cluster_id}\nnode.id=1\ndirectory.id={directory_id}\n"
        (folder / "node-1" / "meta.properties").write_text(properties)
        return folder

    return write


@pytest.fixture
def command(project_root: Path, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[bytes]]:
    """The command as a program; `wrapper` goes before it."""

    def run(*arguments: str | Path, wrapper: Sequence[str] = ()) -> subprocess.CompletedProcess[bytes]:
        program = [
            *wrapper,
            sys.executable,
            "-c",
            "from kraft_audit.commands.cli import main; main()",
            *map(str, arguments),
        ]
        environment = {**os.environ, "PYTHONPATH": str(project_root)}
        return subprocess.run(program, cwd=tmp_path, env=environment, capture_output=True, timeout=280, check=False)

    return run


def contents(folder: Path) -> Iterator[tuple[str, bytes]]:
    """(name, bytes) of all that was written: files, members of archives, every value and statistic of Parquet files."""
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        data = file.read_bytes()
        yield str(file), data
        if zipfile.is_zipfile(io.BytesIO(data)):
            with zipfile.ZipFile(io.BytesIO(data)) as pack:
                for name in pack.namelist():
                    yield f"{file}!{name}", pack.read(name)
        if data[:4] == b"PAR1":
            parquet = pq.ParquetFile(io.BytesIO(data))
            yield f"{file}: statistics", repr(parquet.metadata.to_dict()).encode()
            for row in parquet.read().to_pylist():
                yield f"{file}: row", flattened(row)


def flattened(value: Any) -> bytes:
    """All texts and bytes in a value, joined."""
    if isinstance(value, bytes):
        return value + b"\0"
    if isinstance(value, str):
        return value.encode() + b"\0"
    if isinstance(value, dict):
        return b"".join(map(flattened, value.values()))
    if isinstance(value, list):
        return b"".join(map(flattened, value))
    return b""
