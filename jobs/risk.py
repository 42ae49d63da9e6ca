"""Findings and risk for spark-submit: merge what closed plans said, then exposure and compliance by day.

spark-submit --properties-file conf/spark/standalone.conf --py-files kraft_audit.zip jobs/risk.py fleet.yaml
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from kraft_audit.spark.run import Step
from kraft_audit.spark.run_fleet import main_run


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="risk.py", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("fleet", type=Path, help="fleet.yaml")
    parser.add_argument("--lake", help="URI or path of the lake, instead of the file's")
    parser.add_argument("--output", choices=("table", "json"), default="table", help="how the summary is printed")
    given = parser.parse_args(arguments)
    for step in (Step.FINDINGS, Step.RISK):
        ended = main_run(given.fleet, lake=given.lake, only=step, output=given.output)
        if ended != 0:
            return ended
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
