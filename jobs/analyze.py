"""The main job for spark-submit: plan, stage, commit, close, findings, risk; or one of them.

spark-submit --properties-file conf/spark/standalone.conf --py-files kraft_audit.zip jobs/analyze.py fleet.yaml
spark-submit … jobs/analyze.py fleet.yaml --only stage
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from kraft_audit.spark.run import Step
from kraft_audit.spark.run_fleet import main_run


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="analyze.py", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("fleet", type=Path, help="fleet.yaml")
    parser.add_argument("--lake", help="URI or path of the lake, instead of the file's")
    parser.add_argument("--cluster", action="append", help="only this cluster of the file; may be repeated")
    parser.add_argument("--tables-only", action="store_true", help="end with the tables; findings wait for the gate")
    parser.add_argument("--finish", action="store_true", help="only finish the plan that a killed run left open")
    parser.add_argument(
        "--only", choices=list(Step), help="only this step; the first four are of the plan that is open"
    )
    parser.add_argument("--output", choices=("table", "json"), default="table", help="how the summary is printed")
    parser.add_argument("--log-format", choices=("text", "json"), default="text", help="how progress is printed")
    given = parser.parse_args(arguments)
    only = None if given.only is None else Step(given.only)
    return main_run(
        given.fleet,
        lake=given.lake,
        only=only,
        output=given.output,
        clusters=given.cluster,
        finish=given.finish,
        tables_only=given.tables_only,
        log_format=given.log_format,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
