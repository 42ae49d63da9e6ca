"""
### kraft_incident: the timeline of one cluster, as a notebook that keeps its output

Started by hand with the cluster's name in the fleet file and the time of the incident. Runs
`notebooks/incident_timeline.py` over each path of the cluster, with these as its parameters, and keeps the executed
notebook and its page below `incident/` in the folder for pages, a folder a run and path.

#### When it fails
- **find_paths** is red: the fleet file does not name the cluster; its log lists those that it does.
- **timeline** is red: the log shows the cell that failed, and what was shown until then is kept. A time that is none is
  said there: start again with another. Nothing was written to the lake or to the log dirs.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import yaml
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG, Param, task
from kraft_common import DEFAULTS, FLEET, HOME, OUT, PYTHON, absolute

with DAG(
    dag_id="kraft_incident",
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=4,
    max_active_tasks=4,
    default_args={**DEFAULTS, "retries": 0},
    params={
        "cluster": Param("", type="string", description="name of the cluster in the fleet file"),
        "from": Param("", type="string", description="UTC, as 2026-11-21T01:33:00; empty: the log's beginning"),
        "to": Param("", type="string", description="UTC; empty: the log's end"),
    },
    doc_md=__doc__,
    tags=["kraft-audit"],
):

    @task
    def find_paths(params: dict[str, Any] | None = None, run_id: str | None = None) -> list[dict[str, str]]:
        """The parameters of each notebook, as environment variables: no shell ever reads what people typed."""
        given = params or {}
        clusters = {cluster["name"]: cluster for cluster in yaml.safe_load(FLEET.read_text())["clusters"]}
        if given["cluster"] not in clusters:
            raise ValueError(f"no cluster {given['cluster']!r} in {FLEET}: there are {', '.join(clusters)}")
        folder = "".join(letter if letter.isalnum() else "-" for letter in run_id or "")
        return [
            {
                "PYTHON": PYTHON,
                "SCRIPT": str(HOME / "scripts" / "run_notebook.py"),
                "NOTEBOOK": str(HOME / "notebooks" / "incident_timeline.py"),
                "OUT": f"{OUT}/incident/{folder}/{number}",
                "LOGS": f"PATH={absolute(path)}",
                "CLUSTER": f"CLUSTER={clusters[given['cluster']].get('cluster_id', '')}",
                "FROM_TIME": f"FROM={given['from']}",
                "TO_TIME": f"TO={given['to']}",
            }
            for number, path in enumerate(clusters[given["cluster"]]["paths"])
        ]

    BashOperator.partial(
        task_id="timeline",
        bash_command='"$PYTHON" "$SCRIPT" "$NOTEBOOK" --out "$OUT" "$LOGS" "$CLUSTER" "$FROM_TIME" "$TO_TIME"',
        append_env=True,
        max_active_tis_per_dagrun=2,
    ).expand(env=find_paths())
