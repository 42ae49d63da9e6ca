"""Give Spark what pip cannot: a Java that it runs on, and Delta's jars in a local folder.

The jars come through Spark's own resolver, once; afterwards every session starts offline from that folder.
Run again, it finds all in place and returns within a second.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
JARS = ROOT / ".jars"
JAVA = ROOT / ".java"
JAVA_VERSIONS = (17, 21)
PACKAGES = ("io.delta:delta-spark_4.2_2.13:4.4.0",)
STAMP = "packages.txt"
# Spark's launcher adds this module: a trimmed runtime without it does not start.
JAVA_MODULE = "jdk.incubator.vector"


def main() -> int:
    try:
        java_home = usable_java_home() or install_java()
    except JavaMissingError as problem:
        print(problem, file=sys.stderr)
        return 1
    fill_jars(PACKAGES, JARS, java_home)
    return 0


class JavaMissingError(Exception):
    def __init__(self, reason: object) -> None:
        wanted = " or ".join(map(str, JAVA_VERSIONS))
        remedy = "install a full JDK (Debian: openjdk-17-jdk-headless) or set JAVA_HOME to one"
        super().__init__(f"Spark needs Java {wanted}, none was found or fetched ({reason}): {remedy}")


def usable_java_home() -> Path | None:
    """The first Java that Spark runs on, where Spark itself looks: JAVA_HOME, then the path, then our own folder."""
    candidates = []
    if os.environ.get("JAVA_HOME"):
        candidates.append(Path(os.environ["JAVA_HOME"]))
    if on_path := shutil.which("java"):
        candidates.append(Path(on_path).resolve().parents[1])
    candidates.append(JAVA / "home")
    return next((home for home in candidates if runs_spark(home)), None)


def runs_spark(java_home: Path) -> bool:
    java = java_home / "bin" / "java"
    if not java.is_file():
        return False
    version = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    major = re.search(r'version "(\d+)', version)
    if major is None or int(major[1]) not in JAVA_VERSIONS:
        return False
    modules = subprocess.run([java, "--list-modules"], capture_output=True, text=True, check=False).stdout
    return JAVA_MODULE in modules


def install_java() -> Path:
    """Fetch a JDK into the project's own folder; the Makefile sets JAVA_HOME to it."""
    import jdk

    try:
        home = Path(jdk.install(str(JAVA_VERSIONS[0]), path=str(JAVA)))
    except Exception as problem:  # whatever the network says, the remedy is the same
        raise JavaMissingError(problem) from problem
    link = JAVA / "home"
    link.unlink(missing_ok=True)
    link.symlink_to(home.resolve(), target_is_directory=True)
    if not runs_spark(link):
        raise JavaMissingError(f"the one in {home} lacks {JAVA_MODULE}")
    return link


def fill_jars(packages: Sequence[str], folder: Path, java_home: Path, excludes: Sequence[str] = ()) -> None:
    """Resolve `packages` (group:artifact:version) into `folder`, once; `excludes` are group:artifact.

    What Spark brings itself is left out. The folder comes into place in one step, with the packages written in it, so
    that the next call returns at once. Raises SystemExit where they cannot be fetched.
    """
    if jars_in_place(packages, folder):
        return
    brought = {artifact(jar.name) for jar in spark_jars().glob("*.jar")}
    unfinished = Path(tempfile.mkdtemp(prefix=f"{folder.name}-", dir=folder.parent))
    try:
        for jar in resolve(packages, java_home, unfinished / "ivy", excludes):
            name = jar.name.partition("_")[2]  # Ivy writes organisation_artifact-version.jar
            if artifact(name) not in brought:
                shutil.copyfile(jar, unfinished / name)
        shutil.rmtree(unfinished / "ivy")
        (unfinished / STAMP).write_text("\n".join(packages) + "\n")
        unfinished.chmod(0o755)
        shutil.rmtree(folder, ignore_errors=True)
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    print(f"{len(list(folder.glob('*.jar')))} jars in {folder.name}/")


def jars_in_place(packages: Sequence[str], folder: Path) -> bool:
    stamp = folder / STAMP
    return stamp.is_file() and stamp.read_text().split() == list(packages)


def spark_jars() -> Path:
    import pyspark

    return Path(pyspark.__file__).parent / "jars"


def artifact(jar_name: str) -> str:
    return re.sub(r"-\d.*\.jar$", "", jar_name)


def resolve(packages: Sequence[str], java_home: Path, ivy: Path, excludes: Sequence[str]) -> list[Path]:
    settings = {
        "spark.ui.enabled": "false",
        "spark.jars.packages": ",".join(packages),
        "spark.jars.excludes": ",".join(excludes),
        "spark.jars.ivy": str(ivy),
    }
    session = (
        "from pyspark.sql import SparkSession; "
        f"SparkSession.builder.master('local[1]').config(map={settings!r}).getOrCreate().stop()"
    )
    environment = os.environ | {"JAVA_HOME": str(java_home), "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [sys.executable, "-c", session]
    outcome = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    jars = sorted((ivy / "jars").glob("*.jar"))
    if outcome.returncode or not jars:
        print(outcome.stderr, file=sys.stderr)
        raise SystemExit("Spark's resolver did not fetch " + ", ".join(packages) + ": is Maven Central reachable?")
    return jars


if __name__ == "__main__":
    sys.exit(main())
