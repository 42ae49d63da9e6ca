"""Fetch the Delta jars of the oldest claimed Spark into .spark-oldest/.jars, run by the Python that has that Spark.

A session of that Python finds them there by itself: it looks in the folder that holds its environment.
"""

from __future__ import annotations

import sys
from importlib.metadata import version

from setup_spark import ROOT, JavaMissingError, fill_jars, usable_java_home

JARS = ROOT / ".spark-oldest" / ".jars"


def main() -> int:
    java_home = usable_java_home()
    if java_home is None:
        print(JavaMissingError("the oldest Spark needs it too"), file=sys.stderr)
        return 1
    fill_jars((f"io.delta:delta-spark_2.13:{version('delta-spark')}",), JARS, java_home)
    return 0


if __name__ == "__main__":
    sys.exit(main())
