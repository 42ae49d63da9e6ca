"""Owns every Spark setting: the laptop's defaults, the Delta jars, Java, logs. Nothing else in the project sets one.

Under `spark-submit` (and any launcher that made the JVM already) master, memory and jars are the submitter's, by the
profiles in conf/spark; here only what the session must have is added.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kraft_audit.settings import SettingsError
from kraft_codec.errors import InputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_VERSIONS: Final = (17, 21)
JAVA_REMEDY: Final = (
    "install a JDK 17 or 21 (Debian: openjdk-17-jdk-headless) and set JAVA_HOME to it, or run `make setup`"
)
# Spark's launcher adds this module: a trimmed runtime without it does not start.
JAVA_MODULE: Final = "jdk.incubator.vector"
DELTA_PACKAGE: Final = "io.delta:delta-spark_4.2_2.13:4.4.0"

# What every session needs, wherever it runs.
REQUIRED: Final[Mapping[str, str]] = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65000",
    "spark.sql.session.timeZone": "UTC",
}
# A laptop: Spark's own defaults are made for clusters, and make a tiny Delta write take half a minute on two cores.
LOCAL: Final[Mapping[str, str]] = {
    "spark.master": "local[*]",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.databricks.delta.stats.collect.using.tableSchema": "true",
    "spark.sql.adaptive.enabled": "true",
    "spark.python.worker.reuse": "true",
}


def spark_session(
    application: str,
    *,
    conf_file: Path | None = None,
    settings: Mapping[str, str] | None = None,
    is_brief: bool = False,
) -> SparkSession:
    """The session to work with: the one that is there, or a new one with the project's settings.

    `conf_file` is a Spark properties file whose values win over the laptop's defaults; `settings` win over both. One
    that `is_brief` ends before what Java's second compiler does would pay.
    Raises SettingsError where Java or a file is missing.
    """
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    chosen = dict(REQUIRED)
    launched = "PYSPARK_GATEWAY_PORT" in os.environ
    if not launched:
        use_java()
        chosen |= {**LOCAL, **jar_settings(), **java_settings(is_brief)}
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if conf_file is not None:
        chosen |= read_conf(conf_file)
    chosen |= settings or {}
    # Nothing is written there, but Spark would name a folder in the working directory.
    chosen.setdefault("spark.sql.warehouse.dir", str(Path(tempfile.gettempdir()) / "kraft-audit-warehouse"))
    builder = SparkSession.builder.appName(application).config(map=chosen)
    if launched:
        return builder.getOrCreate()
    with _quiet_launch():
        session = builder.getOrCreate()
    _let_the_job_tell(session)
    return session


def _let_the_job_tell(session: SparkSession) -> None:
    """A JVM that is killed is told where its job fails: PySpark's server of counters and Py4J print tracebacks too."""
    logging.getLogger("py4j").propagate = False
    logging.getLogger().addFilter(_is_not_of_py4j)  # it uses the root logger too; the same filter is added once
    server = getattr(session.sparkContext, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda request, address: None


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in Path(record.pathname).parts


def read_conf(file: Path) -> dict[str, str]:
    """A Spark properties file (`spark.key value` or `spark.key=value` a line, # for comments).

    Raises SettingsError, InputError.
    """
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as problem:
        raise InputError(str(file), getattr(problem, "strerror", None) or "no UTF-8 text") from None
    settings: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        match = re.fullmatch(r"(spark\.[\w.-]+)\s*(?:=|\s)\s*(.+)", text)
        if match is None:
            raise SettingsError(str(file), f"line {number}", text, "a line such as `spark.driver.memory 4g`")
        settings[match[1]] = match[2].strip()
    return settings


def jar_settings() -> dict[str, str]:
    """Delta's jars from a local folder, offline; where there is none, through Spark's resolver."""
    declared = os.environ.get("KRAFT_AUDIT_JARS")
    folder = Path(declared) if declared else project_folder() / ".jars"
    jars = sorted(folder.glob("*.jar"))
    if jars:
        return {"spark.jars": ",".join(str(jar) for jar in jars)}
    if declared:
        raise SettingsError("KRAFT_AUDIT_JARS", "folder", declared, "a folder that holds the Delta jars")
    return {"spark.jars.packages": DELTA_PACKAGE}


def project_folder() -> Path:
    """The folder that `make setup` worked in: the parent of its virtual environment."""
    return Path(sys.prefix).parent


def use_java() -> Path:
    """Find a Java that Spark starts on and point JAVA_HOME at it. Raises SettingsError with the remedy."""
    refused: list[str] = []
    for source, home in _java_homes():
        wrong = _what_is_wrong(home)
        if wrong is None:
            os.environ["JAVA_HOME"] = str(home)
            return home
        refused.append(f"{home} ({source}): {wrong}")
    raise SettingsError("Java", "JAVA_HOME", "; ".join(refused) or "no Java found", f"Java 17 or 21: {JAVA_REMEDY}")


def _java_homes() -> Iterator[tuple[str, Path]]:
    if home := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home)
    if on_path := shutil.which("java"):
        yield "on the path", Path(on_path).resolve().parents[1]
    fetched = project_folder() / ".java" / "home"
    if fetched.exists():
        yield "fetched by make setup", fetched


def _what_is_wrong(home: Path) -> str | None:
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        return "no java that runs"
    # A JDK says of itself what it is; only one that does not is started, which costs half a second.
    told = _release_file(home) or _told_by(java)
    version = re.search(r'(?:version|JAVA_VERSION=) ?"(\d+)', told)
    if version is None:
        return "tells no version"
    if int(version[1]) not in JAVA_VERSIONS:
        return f"Java {version[1]}"
    return None if JAVA_MODULE in told else f"lacks the module {JAVA_MODULE}"


def _release_file(home: Path) -> str:
    try:
        told = (home / "release").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
    return told if "JAVA_VERSION=" in told and "MODULES=" in told else ""


def _told_by(java: Path) -> str:
    try:
        version = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=60)  # noqa: S603
        modules = subprocess.run([java, "--list-modules"], capture_output=True, text=True, check=False, timeout=60)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return version.stderr + modules.stdout


def arrow_problem() -> str | None:
    """Why the tables' Arrow types do not cross into Spark here; None where they do. Starts no JVM."""
    try:
        from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
        from pyspark.sql.pandas.utils import require_minimum_pandas_version, require_minimum_pyarrow_version

        from kraft_audit.spark.tables import LAKE_TABLES

        require_minimum_pyarrow_version()
        require_minimum_pandas_version()
        for table in LAKE_TABLES.values():
            crossed = to_arrow_schema(from_arrow_schema(table.schema), timezone="UTC").names
            if list(crossed) != table.schema.names:
                return f"the columns of {table.name} do not cross"
    except Exception as problem:  # whatever the versions say, it is their misfit
        return " ".join(f"{type(problem).__name__}: {problem}".split())[:200]
    return None


def java_settings(is_brief: bool = False) -> dict[str, str]:
    """Warnings and worse alone: our own progress lines are what people read.

    A JVM that lives for some seconds spends almost half of its processor time on compiling what it never runs again.
    """
    properties = Path(__file__).with_name("log4j2.properties")
    # As a URI, in which no path has a space or a quote: the launcher splits these options at spaces.
    options = [f"-Dlog4j2.configurationFile={properties.as_uri()}"]
    if is_brief:
        options.append("-XX:TieredStopAtLevel=1")
    return {"spark.driver.extraJavaOptions": " ".join(options)}


@contextmanager
def _quiet_launch() -> Iterator[None]:
    """Send what the JVM itself prints (it inherits our stderr) to a file; show it where the JVM does not start.

    KRAFT_AUDIT_SPARK_LOG=- leaves it on stderr; any other value names the file.
    """
    declared = os.environ.get("KRAFT_AUDIT_SPARK_LOG")
    if declared == "-":
        yield
        return
    target = open(declared, "ab") if declared else tempfile.TemporaryFile()  # noqa: SIM115, PTH123  # the JVM keeps it open
    ours = os.dup(2)
    os.dup2(target.fileno(), 2)
    try:
        yield
    except Exception:
        os.dup2(ours, 2)
        if not declared:
            target.seek(0)
            os.write(2, target.read()[-8000:])
        raise
    finally:
        os.dup2(ours, 2)
        os.close(ours)
        target.close()
