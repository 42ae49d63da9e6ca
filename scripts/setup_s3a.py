"""Fetch what lets the JVM reach S3 (s3a) into .jars-s3a, by Spark's own resolver, once.

Only lakes whose committer is `spark` need it: deltalake reaches object stores by itself. The release of hadoop-aws is
that of the Hadoop which this pyspark bundles; of Amazon's SDK only the modules that s3a calls: 13 MB, where its whole
bundle is hundreds.
"""

from __future__ import annotations

import sys

from setup_spark import ROOT, JavaMissingError, fill_jars, spark_jars, usable_java_home

JARS = ROOT / ".jars-s3a"
SDK_VERSION = "2.35.4"  # what hadoop-aws 3.5.0 was built with
SDK_MODULES = ("s3", "s3-transfer-manager", "sts", "apache-client", "netty-nio-client")
SDK_BUNDLE = "software.amazon.awssdk:bundle"


def main() -> int:
    java_home = usable_java_home()
    if java_home is None:
        print(JavaMissingError("s3a needs it too"), file=sys.stderr)
        return 1
    fill_jars(wanted(), JARS, java_home, excludes=(SDK_BUNDLE,))
    return 0


def wanted() -> list[str]:
    """Coordinates, with the release of Hadoop that pyspark bundles."""
    bundled = next(spark_jars().glob("hadoop-client-api-*.jar")).stem
    hadoop = bundled.removeprefix("hadoop-client-api-")
    sdk = [f"software.amazon.awssdk:{module}:{SDK_VERSION}" for module in SDK_MODULES]
    return [f"org.apache.hadoop:hadoop-aws:{hadoop}", *sdk]


if __name__ == "__main__":
    sys.exit(main())
