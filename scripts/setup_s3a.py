"""Fetch what lets the JVM reach S3 (s3a) into .jars-s3a, by Spark's own resolver, once.

Only lakes whose committer is `spark` need it: deltalake reaches object stores by itself. The release of hadoop-aws is
that of the Hadoop which this pyspark bundles; of Amazon's SDK only the modules that s3a calls, not its whole bundle.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from setup_spark import ROOT, JavaMissingError, artifact, usable_java_home

JARS = ROOT / ".jars-s3a"
SDK_VERSION = "2.35.4"  # what hadoop-aws 3.5.0 was built with
SDK_MODULES = ("s3", "s3-transfer-manager", "sts", "apache-client", "netty-nio-client")


def main() -> int:
    packages = wanted()
    stamp = JARS / "packages.txt"
    if stamp.is_file() and stamp.read_text().split() == packages:
        return 0
    java_home = usable_java_home()
    if java_home is None:
        print(JavaMissingError("s3a needs it too"), file=sys.stderr)
        return 1
    fill(java_home, packages)
    print(f"{len(list(JARS.glob('*.jar')))} jars in {JARS.relative_to(ROOT)}/")
    return 0


def wanted() -> list[str]:
    """Coordinates, with the release of Hadoop that pyspark bundles."""
    bundled = next(spark_jars().glob("hadoop-client-api-*.jar")).stem
    hadoop = bundled.removeprefix("hadoop-client-api-")
    sdk = [f"software.amazon.awssdk:{module}:{SDK_VERSION}" for module in SDK_MODULES]
    return [f"org.apache.hadoop:hadoop-aws:{hadoop}", *sdk]


def spark_jars() -> Path:
    import pyspark

    return Path(pyspark.__file__).parent / "jars"


def fill(java_home: Path, packages: list[str]) -> None:
    """Resolve without the bundle, keep what Spark does not bring itself, and put the folder in place in one step."""
    brought = {artifact(jar.name) for jar in spark_jars().glob("*.jar")}
    unfinished = Path(tempfile.mkdtemp(prefix=".jars-s3a-", dir=ROOT))
    try:
        settings = {
            "spark.ui.enabled": "false",
            "spark.jars.packages": ",".join(packages),
            "spark.jars.excludes": "software.amazon.awssdk:bundle",
            "spark.jars.ivy": str(unfinished / "ivy"),
        }
        session = (
            "from pyspark.sql import SparkSession; "
            f"SparkSession.builder.master('local[1]').config(map={settings!r}).getOrCreate().stop()"
        )
        environment = os.environ | {"JAVA_HOME": str(java_home), "SPARK_LOCAL_IP": "127.0.0.1"}
        command = [sys.executable, "-c", session]
        outcome = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        jars = sorted((unfinished / "ivy" / "jars").glob("*.jar"))
        if outcome.returncode or not jars:
            print(outcome.stderr, file=sys.stderr)
            raise SystemExit("Spark's resolver did not fetch hadoop-aws: is Maven Central reachable?")
        for jar in jars:
            name = re.sub(r"^[^_]*_", "", jar.name)  # Ivy writes organisation_artifact-version.jar
            if artifact(name) not in brought:
                shutil.copyfile(jar, unfinished / name)
        shutil.rmtree(unfinished / "ivy")
        (unfinished / "packages.txt").write_text("\n".join(packages) + "\n")
        unfinished.chmod(0o755)
        shutil.rmtree(JARS, ignore_errors=True)
        unfinished.rename(JARS)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
