"""OpenLineage events, if its usual variables ask for them: which clusters a run read, and which tables it wrote.

| variable | means |
| --- | --- |
| OPENLINEAGE_URL | where events go: http(s)://…, or file:///… to append them to a file |
| OPENLINEAGE_ENDPOINT | path below an http URL, api/v1/lineage |
| OPENLINEAGE_API_KEY | a bearer token |
| OPENLINEAGE_CONFIG, OPENLINEAGE__TRANSPORT__… | any other transport of OpenLineage's client, as Kafka |
| OPENLINEAGE_NAMESPACE | the namespace of the job, kraft-audit |

Without one of them nothing is sent. A server that does not answer is one line of progress and never the run's failure.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from kraft_audit.lake.progress import Progress, ProgressLine
from kraft_audit.tables import LAKE_TABLES
from kraft_audit.tables.gold import GOLD
from kraft_codec.storage.opener import file_path

if TYPE_CHECKING:
    from openlineage.client import OpenLineageClient
    from openlineage.client.event_v2 import OutputDataset, RunEvent
    from openlineage.client.facet_v2 import DatasetFacet, JobFacet, OutputDatasetFacet, RunFacet

    from kraft_audit.lake.pipeline import Run

PRODUCER: Final = "urn:kraft-audit"
URL: Final = "OPENLINEAGE_URL"
VARIABLES: Final = (URL, "OPENLINEAGE_CONFIG", "OPENLINEAGE__TRANSPORT__TYPE")
LINEAGE_TIMEOUT_S: Final = 5
JOB: Final = "run"
_LOGIN: Final = re.compile(r"://[^/\s]*@")
DESCRIPTION: Final = "Reads the KRaft metadata logs of Kafka clusters into Delta tables, and says what was unsafe."


class Lineage:
    """The events of one run: START, then COMPLETE or FAIL."""

    def __init__(self, progress: Progress, environment: Mapping[str, str] | None = None) -> None:
        self._environment = os.environ if environment is None else environment
        self._asked = next((name for name in VARIABLES if self._environment.get(name)), None)
        self._progress = progress
        self._run_id = str(uuid.uuid4())

    def send(
        self, event: str, lake: str, clusters: Sequence[str] = (), rows: Mapping[str, int] | None = None, why: str = ""
    ) -> None:
        """Send one event; nothing if no variable asks. `rows` counts those written by table, `why` a run failed."""
        if self._asked is None:
            return
        try:
            self._client().emit(self.event(event, lake, clusters, rows or {}, why))
        except ImportError:
            self._warn("OpenLineage's client is not installed: pip install 'kraft-audit[lineage]'")
        except Exception as problem:  # of any transport: lineage is no reason for a run to fail
            self._warn(" ".join(str(problem).split())[:300])

    def event(self, event: str, lake: str, clusters: Sequence[str], rows: Mapping[str, int], why: str = "") -> RunEvent:
        """One RunEvent. A cluster's log is a dataset of the namespace `kraft`, a table one of the lake's store."""
        from openlineage.client.event_v2 import InputDataset, Job, Run, RunEvent, RunState
        from openlineage.client.facet_v2 import (
            documentation_job,
            error_message_run,
            job_type_job,
            processing_engine_run,
        )

        release = version("kraft-audit")
        of_run: dict[str, RunFacet] = {
            "processing_engine": processing_engine_run.ProcessingEngineRunFacet(release, "kraft-audit")
        }
        if why:
            of_run["errorMessage"] = error_message_run.ErrorMessageRunFacet(why, "Python")
        of_job: dict[str, JobFacet] = {
            "jobType": job_type_job.JobTypeJobFacet("BATCH", "KRAFT_AUDIT", "JOB"),
            "documentation": documentation_job.DocumentationJobFacet(DESCRIPTION),
        }
        namespace = self._environment.get("OPENLINEAGE_NAMESPACE", "kraft-audit")
        inputs = [InputDataset("kraft", f"{name}/__cluster_metadata") for name in clusters]
        return RunEvent(
            eventTime=datetime.now(UTC).isoformat(timespec="milliseconds"),
            producer=PRODUCER,
            eventType=RunState[event],
            run=Run(self._run_id, of_run),
            job=Job(namespace, JOB, of_job),
            inputs=inputs,
            outputs=[_output(lake, table, count) for table, count in sorted(rows.items()) if count],
        )

    def _client(self) -> OpenLineageClient:
        from openlineage.client import OpenLineageClient
        from openlineage.client.transport.file import FileConfig, FileTransport
        from openlineage.client.transport.http import HttpConfig, HttpTransport

        if self._asked != URL:
            return OpenLineageClient()
        url = self._environment[URL]
        if (path := file_path(url)) is not None:
            return OpenLineageClient(transport=FileTransport(FileConfig(log_file_path=path, append=True)))
        if urlsplit(url).scheme not in ("http", "https"):
            raise ValueError("expected http://, https:// or file://")
        settings = {
            "url": url,
            "endpoint": self._environment.get("OPENLINEAGE_ENDPOINT", "api/v1/lineage"),
            "timeout": LINEAGE_TIMEOUT_S,
            "retry": {"total": 0},
        }
        if key := self._environment.get("OPENLINEAGE_API_KEY"):
            settings["auth"] = {"type": "api_key", "apiKey": key}
        return OpenLineageClient(transport=HttpTransport(HttpConfig.from_dict(settings)))

    def _warn(self, why: str) -> None:
        asked = self._asked or ""
        line = f"{self._environment.get(asked, asked)}: {why}"
        self._progress(ProgressLine("lineage", _LOGIN.sub("://", line), level="warning"))


def _output(lake: str, table: str, count: int) -> OutputDataset:
    """A table of the lake: its columns and what they mean, and how many rows were added."""
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.facet_v2 import documentation_dataset, output_statistics_output_dataset, schema_dataset

    place = urlsplit(lake)
    namespace = f"{place.scheme}://{place.netloc}" if place.scheme else "file"
    folder = place.path.strip("/") if place.scheme else lake
    facets: dict[str, DatasetFacet] = {}
    if (contract := LAKE_TABLES.get(table) or GOLD.get(table)) is not None:
        fields = [
            schema_dataset.SchemaDatasetFacetFields(column.name, str(column.type), column.comment)
            for column in contract.columns
        ]
        facets["schema"] = schema_dataset.SchemaDatasetFacet(fields=fields)
        facets["documentation"] = documentation_dataset.DocumentationDatasetFacet(contract.comment)
    counted = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(rowCount=count)
    statistics: dict[str, OutputDatasetFacet] = {"outputStatistics": counted}
    return OutputDataset(namespace, f"{folder}/{table}", facets=facets, outputFacets=statistics)


@contextmanager
def traced(run: Run, progress: Progress) -> Iterator[None]:
    """Send an event when the run begins, and one when it ends, with the tables that it wrote."""
    lineage = Lineage(progress)
    clusters = [cluster.name for cluster in run.fleet.clusters]
    lineage.send("START", run.lake.uri, clusters)
    try:
        yield
    except BaseException as problem:
        lineage.send("FAIL", run.lake.uri, clusters, why=str(problem) or type(problem).__name__)
        raise
    lineage.send("COMPLETE", run.lake.uri, clusters, run.result.rows)
