"""
### kraft_fleet: every hour, what is new in the metadata logs of all clusters

`ingest` → `quality` → `findings` → `publish`, and `notify` after the findings. `ingest` reads the whole fleet in one
job: a lake has one ledger, and the job spreads clusters over Spark by itself. (Groups in parallel need lakes of their
own: give each a fleet file and a copy of this DAG.) `report_asset` updates the asset `kraft_audit_findings`; the event
carries the plan and how many captures, findings and incidents the lake has.

With KRAFT_AUDIT_ONE_TASK=1 one task, `hour`, does it all in one process without Spark, for a quarter less processor
time. A broken table stops what comes after it, too.

A cluster that cannot be read is an open incident and a line under *Not read*, and the run stays green: the others are
judged and published. Where all clusters fail, or more than KRAFT_AUDIT_TOLERATE percent for one reason, as when a role
has expired, `ingest` is red.

#### When it fails
- **ingest** is red: its log says which reason most clusters share, or that all failed: credentials, a network, a full
  disk. Mend that and clear the task. A kill or a lost worker needs nothing but the retry: it finishes the plan that was
  open, and no row is written twice. It runs at most two hours: then the next one goes on.
- **quality** is red: a table breaks its contract. Open the page that the log names; publish nothing before you
  know why. It is not retried, as the same rows would fail again, and stays red until they are mended: it looks at all
  that came since it last was green, and once a day at the whole lake.
- **findings** or **publish** is red: clear them; both write the same again.
- **hour** is red: its log names the step. Clear it: it finishes what is open, and goes on.
- **notify** is red: its log names the target that did not take a message. Clear it: what was not sent is sent, what was
  sent is not sent again. It is skipped where KRAFT_AUDIT_NOTIFY names no notify.yaml.
"""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.sdk import DAG
from kraft_common import (
    DEFAULTS,
    FINDINGS,
    FLEET,
    IS_ONE_TASK,
    NOTIFY,
    PAGES,
    TABLES,
    TOLERATE,
    lake,
    report_asset,
    submit,
    without_spark,
)

LAKE = "{{ lake() }}"

with DAG(
    dag_id="kraft_fleet",
    schedule="@hourly",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    max_active_tasks=4,
    default_args=DEFAULTS,
    user_defined_macros={"lake": lake},
    doc_md=__doc__,
    tags=["kraft-audit"],
):
    if IS_ONE_TASK:
        then = "quality,findings,report,notify" if NOTIFY else "quality,findings,report"
        told = ' --config "$NOTIFY"' if NOTIFY else ""
        run = f'run "{FLEET}" --lake "$LAKE" --tolerate {TOLERATE} --then {then} --out "$OUT/fleet"{told}'
        without_spark("hour", run, outlets=[TABLES, PAGES]) >> report_asset(FINDINGS)
    else:
        ingest = submit(
            "ingest",
            "run",
            [str(FLEET), "--lake", LAKE, "--tables-only", "--tolerate", str(TOLERATE)],
            outlets=[TABLES],
        )
        quality = without_spark("quality", 'lake quality "$LAKE" --new', retries=0)
        findings = submit("findings", "run", [str(FLEET), "--lake", LAKE, "--only", "findings"])
        publish = without_spark("publish", 'report "$LAKE" --out "$OUT/fleet"', outlets=[PAGES])
        notify = without_spark("notify", 'notify "$LAKE" --config "$NOTIFY"', unless_empty="NOTIFY")

        ingest >> quality >> findings >> publish
        findings >> [notify, report_asset(FINDINGS)]
