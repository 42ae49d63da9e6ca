"""A Delta table's log, read by Spark's DataFrame API alone: who committed what, the table's id, columns and folder.

Of the log those actions are read that Delta's public API does not show: `txn` (applications and their versions) and
`metaData`. Source: the Delta transaction log protocol. Versions of an application only grow, so that the largest of the
newest checkpoint and of the commits after it is the newest. Commits before that checkpoint may be deleted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kraft_codec.errors import InputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


LOG_FOLDER: Final = "_delta_log"
ACTIONS: Final = "txn struct<appId string, version bigint>, metaData struct<id string, schemaString string>"
_COMMIT: Final = re.compile(r"(\d{20})\.json")
_CHECKPOINT: Final = re.compile(r"(\d{20})\.checkpoint(?:\.\d{10}\.(\d{10})|\.[0-9a-f-]{36})?\.(parquet|json)")
_MISSING: Final = "PATH_NOT_FOUND"


@dataclass(slots=True)
class DeltaLogState:
    """What a log says up to a version, -1 for nothing: versions by application, the table's id and columns.

    `root` is the table's folder as Spark addresses it.
    """

    version: int = -1
    root: str = ""
    transactions: dict[str, int] = field(default_factory=dict)
    table_id: str = ""
    columns: Sequence[Mapping[str, Any]] = ()


class DeltaLogs:
    """The logs of a lake's tables: each is listed every time it is asked for, and only new commits are read."""

    def __init__(self, spark: Callable[[], SparkSession]) -> None:
        self._spark = spark
        self._known: dict[str, DeltaLogState] = {}

    def state(self, table_uri: str) -> DeltaLogState | None:
        """What the table's log says now; None where there is no table. Raises InputError for a log with a gap."""
        files = self._listed(table_uri)
        commits, checkpoint, at = commits_and_checkpoint(files)
        newest = max([at, *commits])
        if newest < 0:
            return None
        known = self._known.get(table_uri)
        if known is None or known.version > newest or (known.version < newest and known.version + 1 not in commits):
            known = DeltaLogState(root=next(iter(files.values())).rpartition(f"/{LOG_FOLDER}/")[0])
            if checkpoint:
                self._read([files[name] for name in checkpoint], known)
                known.version = at
        new = range(known.version + 1, newest + 1)
        if any(version not in commits for version in new):
            raise InputError(f"{table_uri}/{LOG_FOLDER}", f"lacks a commit between {new.start} and {newest}")
        if new:
            self._read([files[commits[version]] for version in new], known)
            known.version = newest
        self._known[table_uri] = known
        return known

    def _listed(self, table_uri: str) -> dict[str, str]:
        """Address by name of each file of a log. Spark lists the folder, and reads nothing."""
        from pyspark.errors import AnalysisException

        try:
            files = self._spark().read.text(f"{table_uri}/{LOG_FOLDER}").inputFiles()
        except AnalysisException as problem:
            if problem.getCondition() == _MISSING:
                return {}
            raise
        return {file.rpartition("/")[2]: file for file in files}

    def _read(self, files: Sequence[str], into: DeltaLogState) -> None:
        reader = self._spark().read.schema(ACTIONS)
        frame = reader.parquet(*files) if files[0].endswith(".parquet") else reader.json(list(files), mode="FAILFAST")
        rows = frame.where("txn IS NOT NULL OR metaData IS NOT NULL").select("_metadata.file_name", "txn", "metaData")
        for row in sorted(rows.collect(), key=lambda row: row["file_name"]):
            if row["txn"] is not None:
                application, version = row["txn"]
                into.transactions[application] = max(version, into.transactions.get(application, version))
            if row["metaData"] is not None:
                into.table_id = row["metaData"]["id"]
                into.columns = json.loads(row["metaData"]["schemaString"])["fields"]


def commits_and_checkpoint(names: Sequence[str] | Mapping[str, str]) -> tuple[dict[int, str], list[str], int]:
    """Of a log's file names: commits by version, the files of the newest whole checkpoint, and its version or -1."""
    commits = {int(match[1]): name for name in names if (match := _COMMIT.fullmatch(name))}
    checkpoints: dict[tuple[int, int, str], list[str]] = {}
    for name in names:
        if match := _CHECKPOINT.fullmatch(name):
            parts = int(match[2] or 1)
            # Two checkpoints of one version in one file each may be there: either is whole.
            key = (int(match[1]), parts, match[3] if match[2] else name)
            checkpoints.setdefault(key, []).append(name)
    whole = [key for key, files in checkpoints.items() if len(files) == key[1]]
    newest = max(whole, default=None)
    return commits, [] if newest is None else checkpoints[newest], -1 if newest is None else newest[0]
