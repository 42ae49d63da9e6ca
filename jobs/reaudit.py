"""From the archive, for spark-submit: the silver tables and the findings anew, from Delta alone.

spark-submit --properties-file conf/spark/standalone.conf --py-files kraft_audit.zip jobs/reaudit.py --lake LAKE
spark-submit … jobs/reaudit.py --fleet fleet.yaml
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from kraft_audit.spark.run import Step
from kraft_audit.spark.run_fleet import main_run


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="reaudit.py", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--lake", help="URI or path of the lake; needed without --fleet")
    parser.add_argument("--fleet", type=Path, help="fleet.yaml: only its clusters, by its dialects and defaults")
    parser.add_argument("--only", choices=list(Step), help="only this step, of the plan that is open")
    parser.add_argument("--output", choices=("table", "json"), default="table", help="how the summary is printed")
    given = parser.parse_args(arguments)
    if given.fleet is None and given.lake is None:
        parser.error("one of --lake and --fleet is needed")
    only = None if given.only is None else Step(given.only)
    return main_run(given.fleet, lake=given.lake, only=only, output=given.output, from_archive=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
