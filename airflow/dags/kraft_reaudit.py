"""
### kraft_reaudit: by hand, after an upgrade of the rules: the archive is replayed and judged again

No log dir is read. `cluster` names one cluster of the lake, by its name in the fleet file; empty means all. Findings
that the new rules no longer make are closed, their history stays.

#### When it fails
- **reaudit** is red: its log names the cluster. A kill or a lost worker needs nothing but clearing it: the plan that
  was open is finished first.
- **publish** is red: clear it; the same pages are written again.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG, Param
from kraft_common import DEFAULTS, FINDINGS, PAGES, lake, report_asset, submit, without_spark

LAKE = "{{ lake() }}"

with DAG(
    dag_id="kraft_reaudit",
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args={**DEFAULTS, "execution_timeout": timedelta(hours=12)},
    params={"cluster": Param("", type="string", description="name of one cluster; empty: all of the lake")},
    user_defined_macros={"lake": lake},
    render_template_as_native_obj=True,
    doc_md=__doc__,
    tags=["kraft-audit"],
):
    arguments = (
        "{{ ['--from', 'archive', '--lake', lake()] + (['--cluster', params.cluster] if params.cluster else []) }}"
    )
    reaudit = submit("reaudit", "run", arguments)
    publish = without_spark("publish", 'report "$LAKE" --out "$OUT/fleet"', outlets=[PAGES])
    reaudit >> [publish, report_asset(FINDINGS)]
