"""
### kraft_fleet: every hour, what is new in the metadata logs of all clusters

`list_clusters` → `ingest` (mapped, a group of clusters each) → `tables` → `quality` → `findings` → `publish`; the
last task, `every_cluster_read`, is red where a group was.

One plan at a time is open on a lake, so groups are read one after the other, each on the whole Spark cluster. A cluster
that cannot be read makes its group red after the retries; the others go on, and what could be read is judged and
published. A closed quality gate stops the run before findings are published.

#### When it fails
- **ingest** is red: its log names the cluster and the file. Bytes that are not there or not readable are mended where
  they lie; then clear the task. A kill, a full disk or a lost worker needs nothing but the retry: it finishes the plan
  that was open, and no row is written twice.
- **tables** is red: Spark or the lake could not be reached. Clear it when they can; nothing is lost.
- **quality** is red: a table breaks its contract. Open the Data Docs that the log names; publish nothing before you
  know why. It is not retried, as the same rows would fail again, and stays red until they are mended: it looks at all
  that came since it last was green, and once a day at the whole lake.
- **findings** or **publish** is red: clear them; both write the same again.
- **every_cluster_read** is red: some group of `ingest` was. Nothing else is wrong with it.
"""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG, TriggerRule, task
from kraft_common import DEFAULTS, FINDINGS, FLEET, OUT, PAGES, TABLES, cluster_groups, job, lake, submit

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

    @task
    def list_clusters() -> list[list[str]]:
        """The fleet file's clusters in groups, as arguments of the job that reads them."""
        return cluster_groups()

    ingest = SparkSubmitOperator.partial(
        task_id="ingest",
        max_active_tis_per_dagrun=1,
        map_index_template="{{ task.application_args[5] }} …",
        **job("run"),
    ).expand(application_args=list_clusters())

    # Whatever became of the groups, a plan that a killed one left open is finished here.
    tables = submit(
        "tables",
        "run",
        [str(FLEET), "--lake", LAKE, "--finish"],
        trigger_rule=TriggerRule.ALL_DONE,
        outlets=[TABLES],
    )
    quality = submit("quality", "quality", [LAKE, "--new"], retries=0)
    findings = submit("findings", "run", [str(FLEET), "--lake", LAKE, "--only", "findings"], outlets=[FINDINGS])
    publish = submit("publish", "report", [LAKE, "--out", f"{OUT}/fleet"], outlets=[PAGES])

    @task(retries=0)
    def every_cluster_read() -> None:
        """Nothing to do: it runs where every group of clusters was read, and is red where one was not."""

    ingest >> tables >> quality >> findings >> publish >> (read := every_cluster_read())
    ingest >> read
