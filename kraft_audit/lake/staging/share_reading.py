"""Reads a large cluster as one of several tasks, and joins what they left."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa

from kraft_audit.capture.plan import ClusterPlan, KnownBatches
from kraft_audit.findings.analysis import Continuation
from kraft_audit.findings.shares import FIRST, ShareFound, joined
from kraft_audit.lake.redaction_key import redactor_of
from kraft_audit.lake.staging.archive_reading import history_rows, of_history
from kraft_audit.lake.staging.share_files import ShareFiles
from kraft_audit.lake.staging.stage import ReadingEnd
from kraft_audit.reading import ReadingSettings
from kraft_audit.tables import STAGED_AS
from kraft_audit.tables.gold import HISTORIES
from kraft_audit.tables.kept_parts import KeptPartsError
from kraft_codec.errors import InputError
from kraft_codec.storage.opener import StoragePool


class ShareReading:
    """One share of a cluster: its rows, and for the last task what was found."""

    def __init__(self, plan: ClusterPlan, share: int, key: str, known: KnownBatches, lake_uri: str) -> None:
        self._plan = plan
        self._share = share
        self._redactor = redactor_of(plan, key)
        self._known = known
        self._files = ShareFiles(lake_uri, plan)
        self._found = ShareFound()

    def rows(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        if self._share == FIRST and (self._plan.aliases or self._plan.merged):
            yield HISTORIES.name, history_rows(self._plan)
        with StoragePool() as pool:
            settings = ReadingSettings(pool.open, self._redactor, known=self._known, stop_on_change=True)
            for name, batch in self._found.analyze(self._plan, settings):
                yield STAGED_AS.get(name, name), of_history(batch, self._plan)

    def end(self) -> ReadingEnd:
        redaction_state = json.dumps(self._redactor.short_values(), separators=(",", ":"))
        self._files.write(self._share, self._found)
        return ReadingEnd(redaction_state if self._share == FIRST else self._plan.redaction_state)


class JoinReading:
    """What is left of a cluster when all shares were read: no byte of its logs."""

    def __init__(self, plan: ClusterPlan, lake_uri: str) -> None:
        self._plan = plan
        self._files = ShareFiles(lake_uri, plan)
        self._continuation = Continuation()

    def rows(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        try:
            found = self._files.read()
        except KeptPartsError as error:
            raise InputError(self._plan.name, str(error)) from None
        history, state = found[FIRST].history, found[FIRST].state
        if history is None:
            raise InputError(self._plan.name, "the first share left no history")
        for name, batch in joined(self._plan, history, state, found, self._continuation):
            yield STAGED_AS.get(name, name), of_history(batch, self._plan)

    def end(self) -> ReadingEnd:
        state = self._continuation.next_state
        return ReadingEnd(self._plan.redaction_state, None if state is None else state.to_bytes())
