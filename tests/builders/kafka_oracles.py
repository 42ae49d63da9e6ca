"""What Kafka's own classes say of the captures, as the inputs and the expected outputs of the replay."""

from __future__ import annotations

import base64
import functools
import gzip
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kraft_codec.schemas import CONTROL_TYPES, METADATA_BY_API_KEY, Dialect, Field, Message, Type
from kraft_codec.text.java_text import uuid_bytes

ARROW = {
    Type.BOOL: pa.bool_(),
    Type.INT8: pa.int8(),
    Type.INT16: pa.int16(),
    Type.UINT16: pa.uint16(),
    Type.INT32: pa.int32(),
    Type.UINT32: pa.uint32(),
    Type.INT64: pa.int64(),
    Type.FLOAT64: pa.float64(),
    Type.UUID: pa.binary(16),
    Type.STRING: pa.string(),
    Type.BYTES: pa.binary(),
}


def arrow_type(field: Field) -> pa.DataType:
    if field.type is Type.STRUCT:
        data_type: pa.DataType = pa.struct([(inner.column_name, arrow_type(inner)) for inner in field.fields])
    else:
        data_type = ARROW[field.type]
    return pa.list_(data_type) if field.array else data_type


Conversion = Callable[[Any], Any]


def of_json(field: Field) -> Conversion | None:
    """From Kafka's JSON value of a field to what the columns hold; None where they are the same."""
    convert = _of_one(field)
    if convert is None or not field.array:
        return convert and (lambda value: None if value is None else convert(value))
    return lambda values: None if values is None else [convert(value) for value in values]


def _of_one(field: Field) -> Conversion | None:
    if field.type is Type.STRUCT:
        inner = [(each.column_name, each.json_name, each.default, of_json(each)) for each in field.fields]
        return lambda value: {
            column: convert(value.get(name, default)) if convert else value.get(name, default)
            for column, name, default, convert in inner
        }
    if field.type is Type.UUID:
        return lambda value: _uuid_bytes(value) if isinstance(value, str) else value
    if field.type is Type.BYTES:
        return lambda value: base64.b64decode(value) if isinstance(value, str) else value
    return None


_uuid_bytes = functools.cache(uuid_bytes)


def message_of(line: dict[str, Any]) -> Message | None:
    if line["isControl"]:
        control = CONTROL_TYPES[Dialect.KIP853].get(line["controlTypeId"])
        return control.message if control else None
    return METADATA_BY_API_KEY.get(line.get("apiKey", -1))


def columns_of(lines: Iterable[dict[str, Any]]) -> dict[str, pa.RecordBatch]:
    """Oracle lines of records → typed columns per message."""
    by_message: dict[str, list[dict[str, Any]]] = {}
    messages: dict[str, Message] = {}
    for line in lines:
        message = message_of(line)
        if message is not None:
            messages[message.name] = message
            by_message.setdefault(message.name, []).append(line)
    return {name: _batch(messages[name], of_message) for name, of_message in by_message.items()}


def column_name(field: Field) -> str:
    """A field whose name the envelope already has gets a prefix."""
    name: str = field.column_name
    return f"record_{name}" if name == "leader_epoch" else name


def _batch(message: Message, lines: list[dict[str, Any]]) -> pa.RecordBatch:
    columns = {
        "offset": pa.array([line["offset"] for line in lines], pa.int64()),
        "leader_epoch": pa.array([line["partitionLeaderEpoch"] for line in lines], pa.int32()),
        "timestamp_ms": pa.array([line["timestamp"] for line in lines], pa.int64()),
        "base_offset": pa.array([line.get("baseOffset", line["offset"]) for line in lines], pa.int64()),
    }
    for field in message.fields:
        values = [line["data"].get(field.json_name, field.default) for line in lines]
        convert = of_json(field)
        columns[column_name(field)] = pa.array(map(convert, values) if convert else values, arrow_type(field))
    return pa.RecordBatch.from_pydict(columns)


@functools.cache
def _index(folder: Path) -> dict[str, str]:
    return dict(json.loads((folder / "oracle-files" / "index.json").read_text()))


@functools.lru_cache(maxsize=40)
def _records(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt") as text:
        return [line for line in map(json.loads, text) if "offset" in line]


@dataclass(frozen=True)
class Oracle:
    """One scenario of captures."""

    folder: Path

    @property
    def index(self) -> dict[str, str]:
        return _index(self.folder)

    def _lines(self, key: str, kind: str) -> Iterator[dict[str, Any]]:
        path = self.folder / "oracle-files" / f"{key}.{kind}.gz"
        if path.exists():
            with gzip.open(path, "rt") as text:
                for line in text:
                    yield json.loads(line)

    def log_dirs(self) -> list[str]:
        """The distinct `__cluster_metadata-0` folders that have an image, one path for each distinct content."""
        found: dict[str, str] = {}
        for path, key in self.index.items():
            if (
                path.endswith("__cluster_metadata-0")
                and (self.folder / "oracle-files" / f"{key}.image.json.gz").exists()
            ):
                found.setdefault(key, path)
        return list(found.values())

    def distinct_logs(self) -> list[str]:
        """One log dir for each distinct log: the nodes of a quorum mostly hold the same one.

        Of the scenario with most records the one that was captured last, which begins with all that came before.
        """
        found: dict[tuple[str, ...], str] = {}
        for log_dir in self.log_dirs():
            segments = sorted(p for p in self.index if p.startswith(log_dir + "/") and p.endswith(".log"))
            found.setdefault(tuple(self.index[segment] for segment in segments), log_dir)
        return list(found.values())[-1:] if self.folder.name == "volume" else list(found.values())

    def records(self, path: str) -> list[dict[str, Any]]:
        """The record lines of one .log or .checkpoint file."""
        return _records(self.folder / "oracle-files" / f"{self.index[path]}.records.jsonl.gz")

    def log_records(self, log_dir: str) -> list[dict[str, Any]]:
        segments = sorted(p for p in self.index if p.startswith(log_dir + "/") and p.endswith(".log"))
        return [line for segment in segments for line in self.records(segment)]

    def snapshots(self, log_dir: str) -> list[tuple[int, int, str]]:
        """(end offset, epoch, path) of each .checkpoint file with an oracle, ascending."""
        found = []
        for path in self.index:
            if path.startswith(log_dir + "/") and path.endswith(".checkpoint"):
                end_offset, epoch = Path(path).stem.split("-")
                found.append((int(end_offset), int(epoch), path))
        return sorted(found)

    def image(self, log_dir: str) -> dict[str, Any]:
        path = self.folder / "oracle-files" / f"{self.index[log_dir]}.image.json.gz"
        with gzip.open(path, "rt") as text:
            return dict(json.load(text))

    def partition_states(self, log_dir: str) -> list[dict[str, Any]]:
        return list(self._lines(self.index[log_dir], "parts.jsonl"))

    def high_watermarks(self) -> list[dict[str, Any]]:
        path = self.folder / "oracle-files" / "hw.jsonl.gz"
        if not path.exists():
            return []
        with gzip.open(path, "rt") as text:
            return [json.loads(line) for line in text]


@pytest.fixture(scope="session", params=["small_corpus", pytest.param("corpus", marks=pytest.mark.ci)])
def oracles(request: pytest.FixtureRequest) -> list[Oracle]:
    """Scenarios with an oracle: the samples always, all captures where the large set is at hand."""
    root: Path = request.getfixturevalue(request.param)
    return [Oracle(index.parents[1]) for index in sorted(root.glob("*/oracle-files/index.json"))]


@pytest.fixture(scope="session")
def to_columns() -> Callable[[Iterable[dict[str, Any]]], dict[str, pa.RecordBatch]]:
    return columns_of


@pytest.fixture(scope="session")
def sample_lines(small_corpus: Path) -> Callable[[str], list[dict[str, Any]]]:
    """The records of a scenario's longest log that begins at 0."""

    def lines_of(name: str) -> list[dict[str, Any]]:
        oracle = Oracle(small_corpus / name)
        logs = (oracle.log_records(log_dir) for log_dir in oracle.log_dirs())
        return max((lines for lines in logs if lines and lines[0]["offset"] == 0), key=len)

    return lines_of
