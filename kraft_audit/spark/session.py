"""All Spark settings: the laptop's defaults, the Delta jars, Java, logs; and what Spark's errors mean.

Under `spark-submit` (and any launcher that made the JVM already) master, memory and jars are the submitter's, by the
profiles in conf/spark; only what the session must have is added here. No other module sets a Spark setting.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from kraft_audit.lake.settings import SettingsError
from kraft_codec.errors import InputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


JAVA_VERSIONS: Final = (17, 21)
CONNECT_PORT: Final = 15002
CONNECT_TIMEOUT_S: Final = 10
REMOTE: Final = "SPARK_REMOTE"
"""The variable that names a Spark Connect server, as sc://HOST:15002."""
JAVA_REMEDY: Final = (
    "install a JDK 17 or 21 (Debian: openjdk-17-jdk-headless) and set JAVA_HOME to it, or run `make setup`"
)
# Spark's launcher adds this module: a trimmed runtime without it does not start.
JAVA_MODULE: Final = "jdk.incubator.vector"
DELTA_VERSION: Final = "4.4.0"
"""Of Delta's jars, where the package delta-spark does not say which."""

# What every session needs, wherever it runs.
REQUIRED: Final[Mapping[str, str]] = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65000",
    "spark.sql.session.timeZone": "UTC",
}
# For a laptop: Spark's own defaults suit clusters, and make a tiny Delta write take half a minute on two cores.
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
    """The active session, or a new session with the project's settings.

    `conf_file` is a Spark properties file whose values win over the laptop's defaults; `settings` win over both. A
    session that `is_brief` ends before Java's second compiler would pay off. Where SPARK_REMOTE names a Spark Connect
    server, the session is one of that server, which has its own Java, memory and jars.
    Raises SettingsError if Java or a file is missing.
    """
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    if remote := os.environ.get(REMOTE):
        return _connect(
            remote, {**REQUIRED, **(read_conf(conf_file) if conf_file is not None else {}), **(settings or {})}
        )
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
    # Nothing is written there, but without it Spark would choose a folder in the working directory.
    chosen.setdefault("spark.sql.warehouse.dir", str(Path(tempfile.gettempdir()) / "kraft-audit-warehouse"))
    builder = SparkSession.builder.appName(application).config(map=chosen)
    if launched:
        return builder.getOrCreate()
    with _quiet_launch():
        session = builder.getOrCreate()
    _silence_py4j(session)
    return session


def _connect(remote: str, chosen: Mapping[str, str]) -> SparkSession:
    """A session of a Spark Connect server, which keeps its own catalog and what only its start can set."""
    from pyspark.sql import SparkSession

    session: SparkSession = SparkSession.builder.remote(remote).getOrCreate()
    for name, value in chosen.items():
        if session.conf.isModifiable(name) and not name.startswith("spark.sql.catalog."):
            session.conf.set(name, value)
    return session


def require_server() -> None:
    """Raises InputError where SPARK_REMOTE names a server that does not answer: its client would ask for minutes."""
    place = urlsplit(os.environ.get(REMOTE, ""))
    if place.scheme != "sc" or place.hostname is None:
        return
    address = (place.hostname, place.port or CONNECT_PORT)
    try:
        socket.create_connection(address, timeout=CONNECT_TIMEOUT_S).close()
    except OSError as problem:
        why = problem.strerror or str(problem)
        raise InputError(
            f"{REMOTE}=sc://{address[0]}:{address[1]}", f"no Spark Connect server answers: {why}"
        ) from None


def is_connect(session: SparkSession) -> bool:
    """Whether the session is one of a Spark Connect server, and has no JVM in this process."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def own_session(session: SparkSession) -> SparkSession:
    """A session whose settings and temporary views do not mix with those of the caller.

    On Connect the same one: each session is a client of its own there, which the end of this process would wait for.
    """
    return session if is_connect(session) else session.newSession()


def parallelism(session: SparkSession) -> int:
    """How many tasks Spark runs at a time, as far as it says."""
    if is_connect(session):
        return int(session.range(1 << 16).selectExpr("spark_partition_id() AS part").distinct().count())
    return int(session.sparkContext.defaultParallelism)


def remote_host(remote: str) -> str:
    """The address of a Spark Connect server without its parameters: one may be a token."""
    return remote.partition(";")[0].rstrip("/")


def spark_place(session: SparkSession) -> str:
    """Which Spark, and where."""
    where = remote_host(os.environ.get(REMOTE, "Connect")) if is_connect(session) else session.sparkContext.master
    return f"Spark {session.version} on {where}"


def _silence_py4j(session: SparkSession) -> None:
    """Keep PySpark's accumulator server and Py4J from printing tracebacks: the job's error reports a killed JVM."""
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
    """Delta's jars from a local folder, without a network; without that folder, through Spark's resolver."""
    declared = os.environ.get("KRAFT_AUDIT_JARS")
    folder = Path(declared) if declared else project_folder() / ".jars"
    jars = sorted(folder.glob("*.jar"))
    if jars:
        return {"spark.jars": ",".join(str(jar) for jar in jars)}
    if declared:
        raise SettingsError("KRAFT_AUDIT_JARS", "folder", declared, "a folder that holds the Delta jars")
    return {"spark.jars.packages": delta_package()}


def delta_package() -> str:
    """The Maven coordinates of the Delta that fits this PySpark. From Delta 4.1 on they name the Spark too."""
    import pyspark

    try:
        delta = version("delta-spark")
    except PackageNotFoundError:
        delta = DELTA_VERSION
    spark = "" if delta.startswith("4.0.") else "_" + ".".join(pyspark.__version__.split(".")[:2])
    return f"io.delta:delta-spark{spark}_2.13:{delta}"


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
    # A JDK's release file names its version; only a JDK without that file is started, which costs half a second.
    description = _release_file(home) or _java_output(java)
    version = re.search(r'(?:version|JAVA_VERSION=) ?"(\d+)', description)
    if version is None:
        return "shows no version"
    if int(version[1]) not in JAVA_VERSIONS:
        return f"Java {version[1]}"
    return None if JAVA_MODULE in description else f"lacks the module {JAVA_MODULE}"


def _release_file(home: Path) -> str:
    try:
        release = (home / "release").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
    return release if "JAVA_VERSION=" in release and "MODULES=" in release else ""


def _java_output(java: Path) -> str:
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

        from kraft_audit.tables import LAKE_TABLES

        require_minimum_pyarrow_version()
        require_minimum_pandas_version()
        for table in LAKE_TABLES.values():
            crossed = to_arrow_schema(from_arrow_schema(table.schema), timezone="UTC").names
            if list(crossed) != table.schema.names:
                return f"the columns of {table.name} do not cross"
    except Exception as problem:  # of any kind: it means that these versions do not fit each other
        return " ".join(f"{type(problem).__name__}: {problem}".split())[:200]
    return None


def java_settings(is_brief: bool = False) -> dict[str, str]:
    """JVM options: log only warnings and errors, as people read our own progress lines.

    A JVM that runs for a few seconds spends almost half of its processor time on compiling code that it never runs
    again.
    """
    properties = Path(__file__).with_name("log4j2.properties")
    # As a URI, so that no path has a space or a quote: the launcher splits these options at spaces.
    options = [f"-Dlog4j2.configurationFile={properties.as_uri()}"]
    if is_brief:
        options.append("-XX:TieredStopAtLevel=1")
    return {"spark.driver.extraJavaOptions": " ".join(options)}


@contextmanager
def _quiet_launch() -> Iterator[None]:
    """Send what the JVM itself prints (it inherits our stderr) to a file; show it if the JVM does not start.

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


SPARK_ERROR: Final = re.compile(r"(?:Caused by: )?(?P<name>[\w.]*(?:Error|Exception))(?:: (?P<why>.+))")


def spark_error_line(text: str) -> str:
    """The line of Spark's error text that says why: a Python error, else that a worker was lost."""
    errors = [match for line in text.splitlines() if (match := SPARK_ERROR.fullmatch(line.strip()))]
    python = [match for match in errors if "." not in match["name"]]
    lost = [match for match in errors if "worker" in match["why"].lower()]
    best = (python or lost[:1] or errors)[-1:]
    line = f"{best[0]['name'].rpartition('.')[2]}: {best[0]['why']}" if best else text.strip().partition("\n")[0]
    return " ".join(line.split())[:500]


CONFLICT: Final = re.compile(
    r"DELTA_(?:CONCURRENT_|METADATA_CHANGED|PROTOCOL_CHANGED)"
    r"|io\.delta\.exceptions\.(?:Concurrent|MetadataChanged|ProtocolChanged)"
)
"""Delta's conditions, and its exceptions where the text has none. The Python of Delta 4.0 has no classes for them."""


def spark_errors() -> tuple[type[Exception], ...]:
    """What a call into Spark raises: PySpark's own, and py4j's where the JVM's exception has no class in Python."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    return PySparkException, Py4JError


def is_conflict(problem: Exception) -> bool:
    """Whether Delta refused a commit because another one came first."""
    return CONFLICT.search(str(problem)) is not None or type(problem).__module__.startswith("delta.exceptions")


def is_jvm_gone(problem: Exception) -> bool:
    """Whether a call into Spark failed because the JVM has ended, not because of the call."""
    if "pyspark" not in sys.modules:
        return False
    from py4j.protocol import Py4JNetworkError
    from pyspark.errors import PySparkRuntimeError

    if isinstance(problem, PySparkRuntimeError):
        return bool(problem.getCondition() == "JAVA_GATEWAY_EXITED")
    return isinstance(problem, Py4JNetworkError | ConnectionError)
