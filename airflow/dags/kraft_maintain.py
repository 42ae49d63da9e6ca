"""
### kraft_maintain: every night, small files joined, old rows dropped, unused files deleted

Retention and layout are those of KRAFT_AUDIT_MAINTAIN, a file as conf/maintain.yaml; without one nothing is dropped.
Queries give the same answers as before.

#### When it fails
- **maintain** is red: its log names the table. While a plan is open it ends at once, and the retry comes when
  `kraft_fleet` has closed it. Clear it at any time: a table that is arranged already costs nothing.
"""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.sdk import DAG
from kraft_common import DEFAULTS, MAINTAIN, lake, submit

with DAG(
    dag_id="kraft_maintain",
    schedule="30 2 * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args={**DEFAULTS, "retries": 4},
    user_defined_macros={"lake": lake},
    doc_md=__doc__,
    tags=["kraft-audit"],
):
    submit("maintain", "maintain", ["{{ lake() }}", *(["--conf", MAINTAIN] if MAINTAIN else [])])
