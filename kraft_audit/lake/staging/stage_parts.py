"""The parts of a plan: clusters that one task reads one after the other, and the manifest that each part leaves.

Which clusters are together follows from the plan alone, so that two runs that stage one plan make the same parts, and
either's manifest of a part may stand beside the other's of another part. A manifest is there only when all its files
are: a job that is lost loses the parts that were not finished, and no others.
"""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.fs as pafs

from kraft_audit.capture.plan import plan_from_json
from kraft_audit.lake.data_files import table_folder, write_octets
from kraft_audit.lake.lake_paths import is_uri
from kraft_audit.lake.staging.staging_tasks import planned_bytes

STAGING_FOLDER: Final = "_staging"
PART_BYTES: Final = 4 << 20
"""Small clusters share a part, and its files, up to this cost at least: reading less takes less than starting to."""
PART_BYTES_MAX: Final = 64 << 20
PARTS: Final = 24
"""Where there is more to read, parts grow, as each has files of its own: so many are enough to keep all cores busy."""
SECONDS_A_MIB: Final = 1
"""A cluster's deadline grows with what it has to read: even a slow store gives a MiB a second."""

ManifestRow = Mapping[str, Any]
"""A row of `stage.MANIFEST_SCHEMA`."""


@dataclass(frozen=True, slots=True)
class StagePart:
    """Clusters, as (number, plan as JSON), that are read one after the other; `cost_bytes` says how much that is."""

    name: str
    clusters: tuple[tuple[int, str], ...]
    cost_bytes: int


def parts_of(planned: Sequence[tuple[int, str]]) -> list[StagePart]:
    """The parts of a plan whose clusters are given as (number, plan as JSON)."""
    costs = {number: planned_bytes(plan_from_json(text)) for number, text in planned}
    most = min(max(PART_BYTES, sum(costs.values()) // PARTS), PART_BYTES_MAX)
    parts: list[StagePart] = []
    together: list[tuple[int, str]] = []
    size = 0

    def end_part() -> None:
        parts.append(StagePart(f"{len(parts):05d}", tuple(together), size))

    for number, text in sorted(planned, key=lambda cluster: (costs[cluster[0]], cluster[0])):
        if together and size + costs[number] > most:
            end_part()
            together, size = [], 0
        together.append((number, text))
        size += costs[number]
    if together:
        end_part()
    return parts


def named_parts(planned: Sequence[tuple[int, str]], names: Sequence[str] | None) -> list[StagePart]:
    """The parts of these names, all parts by default: `00003`, or `00012-2` for the second attempt of cluster 12."""
    parts = {part.name: part for part in parts_of(planned)}
    if names is None:
        return list(parts.values())
    texts = dict(planned)
    return [parts[name] if name in parts else _retry(name, texts) for name in names]


def part_label(plan: int, name: str) -> str:
    """What the names of a part's data files begin with."""
    return f"plan-{plan:08d}-{name}"


def retry_name(cluster: int, attempt: int) -> str:
    """The name of the part that reads one cluster again."""
    return f"{cluster:05d}-{attempt}"


def _retry(name: str, texts: Mapping[int, str]) -> StagePart:
    number = int(name.partition("-")[0])
    return StagePart(name, ((number, texts[number]),), planned_bytes(plan_from_json(texts[number])))


def deadline_s(minutes: int, cost_bytes: int) -> int:
    """After how many seconds a cluster that costs so much to read is given up."""
    return 60 * minutes + SECONDS_A_MIB * (cost_bytes >> 20)


def write_manifest(data_uri: str, plan: int, part: str, rows: Sequence[ManifestRow]) -> list[ManifestRow]:
    """Leave the manifest of a part, unless another run has left one: the manifest that is there, is what counts.

    An object store may take both, the later over the earlier. Both are whole; `Ledger.record_staged` decides. It
    also decides if another run has meanwhile staged or abandoned the plan and deleted the folder.
    """
    name = f"{part}.jsonl"
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    folder = staging_folder(data_uri, plan)
    if is_uri(data_uri):
        write_octets(folder, name, text)
        return list(rows)
    path = _local_folder(data_uri, plan)
    unfinished = path / f".{name}.{uuid.uuid4().hex}"
    try:
        with unfinished.open("wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(unfinished, path / name)
        except FileExistsError:
            return list(_rows((path / name).read_bytes()))
    except FileNotFoundError:
        return list(rows)
    finally:
        unfinished.unlink(missing_ok=True)
    return list(rows)


def read_manifests(data_uri: str, plan: int) -> dict[str, list[ManifestRow]]:
    """The manifests that were left of a plan, by the name of the part."""
    if not is_uri(data_uri) and not _local_folder(data_uri, plan).is_dir():
        return {}
    folder = staging_folder(data_uri, plan)
    manifests: dict[str, list[ManifestRow]] = {}
    for info in folder.get_file_info(pafs.FileSelector("", allow_not_found=True)):
        if info.base_name.endswith(".jsonl") and not info.base_name.startswith("."):
            # Another run that staged the plan may delete manifests while they are listed.
            with contextlib.suppress(FileNotFoundError), folder.open_input_file(info.path) as file:
                manifests[info.base_name.removesuffix(".jsonl")] = list(_rows(file.read()))
    return manifests


def forget_manifests(data_uri: str, plan: int) -> None:
    """Delete the manifests of a plan that is staged. What cannot be deleted is only unused space."""
    try:
        folder = staging_folder(data_uri, plan)
        for info in folder.get_file_info(pafs.FileSelector("", allow_not_found=True)):
            folder.delete_file(info.path)
        if not is_uri(data_uri):
            _local_folder(data_uri, plan).rmdir()
    except (OSError, pa.ArrowException):
        return


def _rows(text: bytes) -> Iterator[ManifestRow]:
    return (json.loads(line) for line in text.splitlines())


def staging_folder(data_uri: str, plan: int) -> pafs.FileSystem:
    """The folder of what is left while a plan is staged."""
    return table_folder(data_uri, f"{STAGING_FOLDER}/plan-{plan:08d}")


def _local_folder(data_uri: str, plan: int) -> Path:
    return Path(data_uri, STAGING_FOLDER, f"plan-{plan:08d}")
