"""A lake whose incidents are written by hand, and an HTTP server that takes what `notify` says about them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from kraft_audit.findings.situation import NOT_ASKED
from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.gold.clusters_table import update_clusters
from kraft_audit.lake.ledger import Ledger, contract_schema
from kraft_audit.lake.ledger_state import ClusterOutcome, Manifest, PlannedCluster, StateChange
from kraft_audit.lake.settings import ClusterSettings
from kraft_audit.tables.contract import Table
from kraft_audit.tables.gold import FINDINGS, INCIDENTS, SITUATIONS
from tests.builders.http_store import Answer, Request, http_server
from tests.builders.lakes import MakePlan


class NotifiedLake:
    """Each `run` is one plan that read these clusters and found these incidents, and no others, open."""

    def __init__(self, uri: str, make_plan: MakePlan) -> None:
        self.uri = uri
        self._make_plan = make_plan
        self._ledger = Ledger(DeltaLake(uri))
        self._ledger.create()
        for table in (FINDINGS, INCIDENTS):
            self._ledger.lake.create(table.name, contract_schema(table), table.comment)
        self._open: dict[str, dict[str, Any]] = {}

    def run(self, clusters: Sequence[str], incidents: Sequence[Mapping[str, Any]]) -> int:
        ledger, number = self._ledger, self._ledger.newest_plan() + 1
        assert ledger.open_plan([PlannedCluster(self._make_plan(name, number)) for name in clusters], "key")
        outcomes = [
            ClusterOutcome(place, name, name, None, StateChange(number, (f"{number}-0",)), {})
            for place, name in enumerate(clusters)
        ]
        assert ledger.record_staged(number, Manifest(tuple(outcomes), ()))
        assert ledger.close_plan(number, {})
        others = [row for row in self._open.values() if row["cluster_id"] not in clusters]
        self._open = {row["incident_id"]: row for row in (*others, *(_row(each, number) for each in incidents))}
        lake = ledger.lake
        assert isinstance(lake, DeltaLake)
        lake.open(INCIDENTS.name).delete()
        rows = pa.Table.from_pylist(list(self._open.values()), contract_schema(INCIDENTS))
        ((place, _),) = ledger.closings(number - 1)
        lake.append_rows(INCIDENTS.name, rows, ledger.application(INCIDENTS.name), place)
        return number

    def lose(self, cluster: str, from_ms: int, *, incident_id: str | None = None) -> None:
        """One more loss of acknowledged records is open, explained by an incident where one is named."""
        lake = DeltaLake(self.uri)
        finding_id = f"{cluster} {from_ms}"
        row = {name: None if column.nullable else _empty(column.type) for name, column in _columns(FINDINGS)}
        row |= {"finding_id": finding_id, "cluster_id": cluster, "rule": "KP020", "name": "records-lost"}
        row |= {"severity": "high", "status": "raised", "state": "open", "from_ms": from_ms, "summary": "records lost"}
        row["incident_id"] = incident_id
        write_deltalake(lake.table_uri(FINDINGS.name), pa.Table.from_pylist([row], FINDINGS.schema), mode="append")

    def sum_up(self, cluster: str, command: str) -> None:
        """What a run says to do first in a cluster."""
        lake = DeltaLake(self.uri)
        self._ledger.lake.create(SITUATIONS.name, contract_schema(SITUATIONS), SITUATIONS.comment)
        row = replace(NOT_ASKED, need=0, command=command).row(cluster, 1, 0)
        rows = pa.Table.from_pylist([row], SITUATIONS.schema)
        write_deltalake(lake.table_uri(SITUATIONS.name), rows, mode="overwrite")

    def name(self, clusters: Sequence[ClusterSettings]) -> None:
        """What fleet.yaml says of the clusters."""
        update_clusters(DeltaLake(self.uri), self._ledger.status().done, clusters)


def _columns(table: Table) -> list[tuple[str, pa.Field]]:
    return [(field.name, field) for field in table.schema]


def _empty(kind: pa.DataType) -> Any:
    """A value that says nothing."""
    if pa.types.is_list(kind):
        return []
    return False if pa.types.is_boolean(kind) else "" if pa.types.is_string(kind) else 0


def _row(incident: Mapping[str, Any], plan: int) -> dict[str, Any]:
    given = {"kind": "broker_loss", "subject": "broker 13", "severity": "high", "headline": "Broker 13 is lost"}
    return {
        **dict.fromkeys(INCIDENTS.column_names),
        "state": "open" if incident.get("is_open", True) else "resolved",
        "is_open": True,
        "is_clean": False,
        "effects": [],
        "events": [],
        "rules": [],
        "first_plan": plan,
        "plan": plan,
        **given,
        **incident,
    }


@dataclass
class Listener:
    """What was posted, in order; `refuse` answers as often with status 503 first."""

    url: str
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[str] = field(default_factory=list)
    refuse: int = 0

    @property
    def keys(self) -> list[str]:
        return [body["key"] for body in self.bodies]


@contextlib.contextmanager
def listener() -> Iterator[Listener]:
    found = Listener("")

    def take(request: Request) -> Answer:
        if found.refuse:
            found.refuse -= 1
            return 503, {}, b""
        found.bodies.append(json.loads(request.body))
        found.headers.append(request.headers.get("idempotency-key", ""))
        return 202, {}, b""

    with http_server() as server:
        server.routes["POST /secret-path"] = take
        found.url = f"{server.url}/secret-path"
        yield found
