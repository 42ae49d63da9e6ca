"""OpenLineage events, if its usual variables ask for them: which clusters a run read, and which tables it wrote.

| variable | means |
| --- | --- |
| OPENLINEAGE_URL | where events go: http(s)://…, or file:///… to append them to a file; without it nothing is sent |
| OPENLINEAGE_ENDPOINT | path below an http URL, api/v1/lineage |
| OPENLINEAGE_API_KEY | a bearer token |
| OPENLINEAGE_NAMESPACE | the namespace of the job, kraft-audit |

A server that does not answer is one line of progress and never the run's failure.
"""

from __future__ import annotations

import json
import os
import urllib.request
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from kraft_audit.lake.progress import Progress, ProgressLine
from kraft_codec.storage.opener import file_path

if TYPE_CHECKING:
    from kraft_audit.lake.pipeline import Run

PRODUCER: Final = "urn:kraft-audit"
EVENT_SCHEMA: Final = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
SECONDS_TO_ANSWER: Final = 5
JOB: Final = "run"


class Lineage:
    """The events of one run: START, then COMPLETE or FAIL."""

    def __init__(self, progress: Progress, environment: Mapping[str, str] | None = None) -> None:
        self._environment = os.environ if environment is None else environment
        self._url = self._environment.get("OPENLINEAGE_URL", "")
        self._progress = progress
        self._run_id = str(uuid.uuid4())

    def send(self, event: str, lake: str, clusters: Sequence[str] = (), tables: Sequence[str] = ()) -> None:
        """Send one event; nothing if no URL is set."""
        if not self._url:
            return
        try:
            self._post(json.dumps(self.event(event, lake, clusters, tables)))
        except (OSError, ValueError) as problem:
            self._progress(ProgressLine("lineage", f"{self._url}: {problem}", level="warning"))

    def event(self, event: str, lake: str, clusters: Sequence[str], tables: Sequence[str]) -> dict[str, Any]:
        """One RunEvent. A cluster's log is a dataset of the namespace `kraft`, a table one of the lake's store."""
        place = urlsplit(lake)
        namespace = f"{place.scheme}://{place.netloc}" if place.scheme else "file"
        folder = place.path.strip("/") if place.scheme else lake
        return {
            "eventType": event,
            "eventTime": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "run": {"runId": self._run_id},
            "job": {"namespace": self._environment.get("OPENLINEAGE_NAMESPACE", "kraft-audit"), "name": JOB},
            "inputs": [{"namespace": "kraft", "name": f"{cluster}/__cluster_metadata"} for cluster in clusters],
            "outputs": [{"namespace": namespace, "name": f"{folder}/{table}"} for table in tables],
            "producer": PRODUCER,
            "schemaURL": EVENT_SCHEMA,
        }

    def _post(self, text: str) -> None:
        if (path := file_path(self._url)) is not None:
            with Path(path).open("a", encoding="utf-8") as file:
                file.write(text + "\n")
            return
        if urlsplit(self._url).scheme not in ("http", "https"):
            raise ValueError("expected http://, https:// or file://")
        endpoint = self._environment.get("OPENLINEAGE_ENDPOINT", "api/v1/lineage")
        headers = {"Content-Type": "application/json"}
        if key := self._environment.get("OPENLINEAGE_API_KEY"):
            headers["Authorization"] = f"Bearer {key}"
        request = urllib.request.Request(  # noqa: S310  # the scheme was checked
            f"{self._url.rstrip('/')}/{endpoint}", text.encode(), headers, method="POST"
        )
        with urllib.request.urlopen(request, timeout=SECONDS_TO_ANSWER):  # noqa: S310
            pass


@contextmanager
def traced(run: Run, progress: Progress) -> Iterator[None]:
    """Send an event when the run begins, and one when it ends, with the tables that it wrote."""
    lineage = Lineage(progress)
    clusters = [cluster.name for cluster in run.fleet.clusters]
    lineage.send("START", run.lake.uri, clusters)
    try:
        yield
    except BaseException:
        lineage.send("FAIL", run.lake.uri, clusters)
        raise
    tables = sorted(table for table, rows in run.result.rows.items() if rows)
    lineage.send("COMPLETE", run.lake.uri, clusters, tables)
