"""The fixtures that tests of the audit share."""

from tests.builders.captures import two_nodes
from tests.builders.commands import compiled_kernels, kraft_audit, program
from tests.builders.histories import build
from tests.builders.kafka_oracles import oracles, sample_lines, to_columns
from tests.builders.lakes import (
    archived,
    copy_aged,
    in_steps_and_whole,
    lake_hash,
    make_fleet,
    make_plan,
    rows_of,
    script,
    spark,
    table_versions,
    without_spark,
)
from tests.builders.logs import empty, headers, log, node, reading, usual_log
from tests.builders.report_sources import harmed_clusters, last_replica, reverted_change
from tests.builders.rescues import one_left
from tests.builders.standalone_spark import spark_environment, spark_master
