"""How a run of a DAG ended, as Airflow's own database says."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class DagRun:
    """What `airflow dags test` did: its exit code, what it printed, and how each task instance ended.

    `states` is by task id, or by task id and the text that names a mapped one.
    """

    exit_code: int
    output: str
    states: Mapping[str | tuple[str, str], str]
    tries: Mapping[str | tuple[str, str], int]


def instances(database: Path, dag_id: str) -> list[tuple[str, int, str | None, str | None, int]]:
    """Task id, map index, name of the mapped one, state and attempts, of the newest run of a DAG."""
    sql = """SELECT task_id, map_index, rendered_map_index, state, try_number FROM task_instance WHERE run_id =
        (SELECT run_id FROM dag_run WHERE dag_id = ? ORDER BY id DESC LIMIT 1) AND dag_id = ?"""
    with sqlite3.connect(database) as connection:
        return connection.execute(sql, (dag_id, dag_id)).fetchall()
