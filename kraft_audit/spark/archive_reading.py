"""One cluster of a plan read from the archive: silver rows and findings, by the functions that read log dirs."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from kraft_audit.analyze import reanalyze
from kraft_audit.replay.archived import ArchivedRedactor
from kraft_audit.replay.plan import ClusterPlan
from kraft_audit.replay.tables import SILVER, WATERMARKS
from kraft_audit.rules.tables import FINDINGS
from kraft_audit.spark.archive_tables import LakeArchive, LakeCluster, open_archive
from kraft_audit.spark.lake import DeltaLake
from kraft_audit.spark.redaction_key import KEY_BYTES
from kraft_audit.spark.tables import FINDINGS_STAGED
from kraft_codec.errors import InputError
from kraft_codec.schemas import Dialect
from kraft_codec.tables import BATCHES, CAPTURES, DECODE_ERRORS

ARCHIVED_ROOT: Final = "archive:"
"""What the roots of a plan begin with that reads the archive; a path is absolute, an address has `://`."""
REPLAYED: Final = frozenset(SILVER) - {WATERMARKS.name}


def is_archived(plan: ClusterPlan) -> bool:
    """Whether a plan reads the archive."""
    return bool(plan.replicas) and plan.replicas[0].root.startswith(ARCHIVED_ROOT)


class ArchiveReading:
    """One cluster of a plan, read from the archive."""

    def __init__(self, plan: ClusterPlan, lake_uri: str) -> None:
        self._plan = plan
        self._lake_uri = lake_uri

    def rows(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        plan, lake = self._plan, DeltaLake(self._lake_uri)
        cluster = LakeCluster(plan.cluster_id, plan.name, Dialect(plan.dialect), plan.defaults)
        tables = LakeArchive.of(lake, plan.cluster_id, plan.number - 1)
        archived = open_archive(lake, cluster, plan.number - 1, plan.number, root=ARCHIVED_ROOT)
        if archived.plan.replicas != plan.replicas:
            raise InputError(self._lake_uri, "the archive is not what was planned")
        redactor = ArchivedRedactor(secrets.token_bytes(KEY_BYTES))

        def told() -> Iterator[tuple[str, pa.RecordBatch]]:
            yield CAPTURES.name, archived.captures
            for table in (BATCHES, DECODE_ERRORS):
                rows = archived.renumbered(tables.whole(table))
                yield from ((table.name, batch) for batch in rows.to_batches())

        rows = reanalyze(plan, told(), REPLAYED, open_storage=archived.open_storage, redactor=redactor)
        for name, batch in rows:
            yield (FINDINGS_STAGED.name if name == FINDINGS.name else name), batch

    def redaction_state(self) -> str:
        return self._plan.redaction_state
