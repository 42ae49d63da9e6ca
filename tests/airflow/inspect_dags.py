"""Run by Airflow's own Python: what its parser makes of the DAG files, as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from airflow.dag_processing.dagbag import BundleDagBag

bag = BundleDagBag(dag_folder=sys.argv[1], bundle_path=Path(sys.argv[1]), bundle_name="dags-folder")
described = {
    "errors": bag.import_errors,
    "dags": {
        name: {
            "doc": dag.doc_md,
            "catchup": dag.catchup,
            "max_active_runs": dag.max_active_runs,
            "schedule": type(dag.timetable).__name__,
            "params": sorted(dag.params),
            "tasks": {
                task.task_id: {
                    "operator": type(task).__name__,
                    "is_mapped": bool(task.is_mapped),
                    "retries": task.retries,
                    "retry_delay_s": task.retry_delay.total_seconds(),
                    "timeout_s": task.execution_timeout.total_seconds() if task.execution_timeout else None,
                    "trigger_rule": str(task.trigger_rule),
                    "downstream": sorted(task.downstream_task_ids),
                    "outlets": [outlet.name for outlet in task.outlets],
                    "at_once": task.max_active_tis_per_dagrun,
                    "application": str(
                        (task.partial_kwargs.get("application") if task.is_mapped else getattr(task, "application", ""))
                        or ""
                    ),
                }
                for task in dag.tasks
            },
        }
        for name, dag in bag.dags.items()
    },
}
sys.stdout.write("\n" + json.dumps(described))
