"""
### kraft_compliance: whenever findings changed, which controls were met

Waits for the asset `kraft_audit_findings`, brings exposure and controls per cluster and day up to date (`risk`), and
writes the pages of the day for the auditor (`pages`), each day a folder of its own that is never written again.

#### When it fails
- **risk** is red: Spark or the lake could not be reached; clear it when they can. A day's rows are replaced as a whole.
- **pages** is red: its log names the folder that could not be written. Clear it; the same pages are written again.
"""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.sdk import DAG
from kraft_common import DEFAULTS, FINDINGS, FLEET, lake, submit, without_spark

LAKE = "{{ lake() }}"

with DAG(
    dag_id="kraft_compliance",
    schedule=[FINDINGS],
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args=DEFAULTS,
    user_defined_macros={"lake": lake},
    doc_md=__doc__,
    tags=["kraft-audit"],
):
    risk = submit("risk", "run", [str(FLEET), "--lake", LAKE, "--only", "risk"])
    pages = without_spark("pages", 'report "$LAKE" --out "$OUT/compliance/{{ dag_run.run_after | ds }}"')
    risk >> pages
